// SPDX-License-Identifier: Apache-2.0
// A C++17 wrapper of minim.h: handles are released automatically, errors are minim::Exception, texts and ids are views.
// Header-only and thin: every class owns one handle of the C interface, which get() returns; minim.h is the manual. Handles
// may be destroyed in any order. A moved-from object may only be destroyed or assigned
// to.
//
// An exception in a progress or token callback is carried across the library and thrown from the call that ran
// it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "minim/minim.h"

namespace minim {

// A failed call; what() is its message.
class Exception : public std::runtime_error {
  public:
    explicit Exception(const minim_error& error) : std::runtime_error(error.message), error_(error) {}

    minim_status status() const noexcept { return error_.status; }
    int32_t reason() const noexcept { return error_.reason; }  // MINIM_REASON_*, or 0
    const minim_error& error() const noexcept { return error_; }

  private:
    minim_error error_;
};

namespace detail {

template <typename T, void (*release)(T*)>
struct Releaser {
    void operator()(T* handle) const noexcept { release(handle); }
};

template <typename T, void (*release)(T*)>
using Handle = std::unique_ptr<T, Releaser<T, release>>;

// Runs call(&error) and throws if it fails.
template <typename Call>
void check(Call&& call) {
    minim_error error = MINIM_ERROR_INIT;
    if (call(&error) != MINIM_OK) throw Exception(error);
}

// The same for a call with an out-parameter: call(&out, &error).
template <typename HandleType, typename Call>
HandleType create(Call&& call) {
    typename HandleType::pointer out = nullptr;
    check([&](minim_error* error) { return call(&out, error); });
    return HandleType(out);
}

// Stores an exception of a callback while the library's C frames are on the stack.
class Carrier {
  public:
    // Returns true if `callback` wants to continue; a callback without a result always does.
    template <typename Callback, typename... Args>
    bool run(Callback& callback, Args&&... args) noexcept {
        try {
            if constexpr (std::is_void_v<std::invoke_result_t<Callback&, Args...>>) {
                callback(std::forward<Args>(args)...);
                return true;
            } else {
                return static_cast<bool>(callback(std::forward<Args>(args)...));
            }
        } catch (...) {
            exception_ = std::current_exception();
            return false;
        }
    }

    void rethrow() const {
        if (exception_) std::rethrow_exception(exception_);
    }

  private:
    std::exception_ptr exception_;
};

inline const char* text_or_null(const std::string& text) noexcept {
    return text.empty() ? nullptr : text.c_str();
}

}  // namespace detail

// A view of the caller's token ids.
class Ids {
  public:
    Ids(const int32_t* data, size_t size) noexcept : data_(data), size_(size) {}
    Ids(const std::vector<int32_t>& ids) noexcept : Ids(ids.data(), ids.size()) {}
    Ids(std::initializer_list<int32_t> ids) noexcept : Ids(ids.begin(), ids.size()) {}

    const int32_t* data() const noexcept { return data_; }
    size_t size() const noexcept { return size_; }

  private:
    const int32_t* data_;
    size_t size_;
};

class Tokens {
  public:
    explicit Tokens(minim_tokens* tokens) noexcept : handle_(tokens) {}

    const int32_t* data() const noexcept { return minim_tokens_data(handle_.get()); }
    size_t size() const noexcept { return minim_tokens_count(handle_.get()); }
    const int32_t* begin() const noexcept { return data(); }
    const int32_t* end() const noexcept { return data() + size(); }
    int32_t operator[](size_t index) const noexcept { return data()[index]; }
    operator Ids() const noexcept { return {data(), size()}; }
    const minim_tokens* get() const noexcept { return handle_.get(); }

  private:
    detail::Handle<minim_tokens, minim_tokens_free> handle_;
};

class Text {
  public:
    explicit Text(minim_text* text) noexcept : handle_(text) {}

    std::string_view view() const noexcept {
        return {minim_text_data(handle_.get()), minim_text_length(handle_.get())};
    }
    std::string str() const { return std::string(view()); }
    const char* c_str() const noexcept { return minim_text_data(handle_.get()); }
    const minim_text* get() const noexcept { return handle_.get(); }

  private:
    detail::Handle<minim_text, minim_text_free> handle_;
};

class Cancel {
  public:
    Cancel() : handle_(detail::create<HandleType>(minim_cancel_create)) {}

    void trigger() const noexcept { minim_cancel_trigger(handle_.get()); }
    void reset() const noexcept { minim_cancel_reset(handle_.get()); }
    minim_cancel* get() const noexcept { return handle_.get(); }

  private:
    using HandleType = detail::Handle<minim_cancel, minim_cancel_free>;
    HandleType handle_;
};

inline minim_cancel* get(const Cancel* cancel) noexcept {
    return cancel == nullptr ? nullptr : cancel->get();
}

// The version of the library, "0.1.0" and 1000, to compare with MINIM_VERSION_NUMBER; and one line about its build.
inline std::string_view version() noexcept {
    return minim_version();
}
inline uint32_t version_number() noexcept {
    return minim_version_number();
}
inline std::string_view build_info() noexcept {
    return minim_build_info();
}
// Returns whether this build has a feature that minim_has_feature names.
inline bool has_feature(const std::string& name) noexcept {
    return minim_has_feature(name.c_str()) == 1;
}

// Receives complete lines, from any thread that is in a call. Its exceptions are dropped.
using Log = std::function<void(int32_t level, const char* line)>;

// One part of the library's arithmetic; call it once for each index, with the number of the thread that runs it.
using Task = std::function<void(int64_t index, int32_t slot)>;
// Runs n_tasks parts on the host's threads, and returns when all have returned (minim_parallel_for_fn).
using ParallelFor = std::function<void(int64_t n_tasks, const Task& task)>;

struct RuntimeOptions {
    int32_t n_threads = 0;
    int32_t log_level = MINIM_LOG_WARNING;
    Log log;
    int32_t n_threads_decode = 0;
    bool pin_threads = false;
    int32_t numa = MINIM_NUMA_AUTO;
    ParallelFor parallel_for = {};  // empty: threads of the library; else n_threads must be set
};

class Runtime {
  public:
    explicit Runtime(const RuntimeOptions& options = {}) {
        minim_runtime_params params = MINIM_RUNTIME_PARAMS_INIT;
        params.n_threads = options.n_threads;
        params.n_threads_decode = options.n_threads_decode;
        params.pin_threads = options.pin_threads ? 1 : 0;
        params.numa = options.numa;
        struct Callbacks {
            Log log;
            ParallelFor parallel_for;
        };
        const auto callbacks = std::make_shared<Callbacks>(Callbacks{options.log, options.parallel_for});
        log_ = std::shared_ptr<Log>(callbacks, &callbacks->log);
        if (options.log) {
            params.log_level = options.log_level;
            params.log = [](void* log, int32_t level, const char* line) {
                detail::Carrier().run(*static_cast<Log*>(log), level, line);
            };
            params.log_user_data = log_.get();
        }
        if (options.parallel_for) {
            params.parallel_for = [](void* user_data, int64_t n_tasks, minim_task_fn task,
                                     const void* context) {
                const Task run = [&](int64_t index, int32_t slot) { task(context, index, slot); };
                (*static_cast<ParallelFor*>(user_data))(n_tasks, run);
            };
            params.parallel_for_user_data = &callbacks->parallel_for;
        }
        handle_ = detail::create<HandleType>([&](minim_runtime** out, minim_error* error) {
            return minim_runtime_create(&params, out, error);
        });
    }

    int32_t thread_count() const noexcept { return minim_runtime_thread_count(handle_.get()); }
    const char* cpu_level() const noexcept { return minim_runtime_cpu_level(handle_.get()); }
    const char* numa() const noexcept { return minim_runtime_numa(handle_.get()); }  // the mode in use
    minim_runtime* get() const noexcept { return handle_.get(); }

    // Keeps both callbacks: they live as long as the runtime and its children, which share it.
    const std::shared_ptr<Log>& log() const noexcept { return log_; }

  private:
    using HandleType = detail::Handle<minim_runtime, minim_runtime_free>;
    std::shared_ptr<Log> log_;
    HandleType handle_;
};

class Checkpoint {
  public:
    Checkpoint(const Runtime& runtime, const std::string& path)
        : log_(runtime.log()),
          handle_(detail::create<HandleType>([&](minim_checkpoint** out, minim_error* error) {
              return minim_checkpoint_open(runtime.get(), path.c_str(), out, error);
          })) {}
    // A descriptor of a GGUF file or a folder, which the caller may close afterwards.
    static Checkpoint open_fd(const Runtime& runtime, int32_t descriptor) {
        minim_checkpoint* checkpoint = nullptr;
        detail::check([&](minim_error* error) {
            return minim_checkpoint_open_fd(runtime.get(), descriptor, &checkpoint, error);
        });
        return {checkpoint, runtime.log()};
    }
    Checkpoint(minim_checkpoint* checkpoint, std::shared_ptr<Log> log) noexcept
        : log_(std::move(log)), handle_(checkpoint) {}

    size_t file_count() const noexcept { return minim_checkpoint_file_count(handle_.get()); }
    uint64_t file_bytes() const noexcept { return minim_checkpoint_file_bytes(handle_.get()); }

    size_t metadata_count() const noexcept { return minim_checkpoint_metadata_count(handle_.get()); }
    // Null after the last one.
    const char* metadata_key(size_t index) const noexcept {
        return minim_checkpoint_metadata_key(handle_.get(), index);
    }
    // `max_array`: array elements written before "..."; 0: all.
    Text metadata(const std::string& key, size_t max_array = 0) const {
        minim_text* text = nullptr;
        detail::check([&](minim_error* error) {
            return minim_checkpoint_metadata(handle_.get(), key.c_str(), max_array, &text, error);
        });
        return Text(text);
    }

    // Returns the sampling that its makers recommend.
    minim_recommended_sampling recommended_sampling() const {
        minim_recommended_sampling sampling = MINIM_RECOMMENDED_SAMPLING_INIT;
        detail::check([&](minim_error* error) {
            return minim_checkpoint_recommended_sampling(handle_.get(), &sampling, error);
        });
        return sampling;
    }

    size_t tensor_count() const noexcept { return minim_checkpoint_tensor_count(handle_.get()); }
    // Its name and format are valid as long as the checkpoint.
    minim_tensor_info tensor(size_t index) const {
        minim_tensor_info info = MINIM_TENSOR_INFO_INIT;
        detail::check(
            [&](minim_error* error) { return minim_checkpoint_tensor(handle_.get(), index, &info, error); });
        return info;
    }

    const minim_checkpoint* get() const noexcept { return handle_.get(); }

  private:
    using HandleType = detail::Handle<minim_checkpoint, minim_checkpoint_close>;
    std::shared_ptr<Log> log_;
    HandleType handle_;
};

// Return true to continue, false to cancel.
using Progress = std::function<bool(uint64_t done_bytes, uint64_t total_bytes)>;

namespace detail {

// A call that reports progress. It must stay in its place until the call has returned; then carrier.rethrow().
struct ProgressCall {
    const Progress& progress;
    Carrier carrier = {};

    // Sets the callback of the call's parameters, if there is one.
    template <typename Params>
    void set(Params& params) {
        if (!progress) return;
        params.progress = [](void* user_data, uint64_t done_bytes, uint64_t total_bytes) -> int32_t {
            ProgressCall& call = *static_cast<ProgressCall*>(user_data);
            return call.carrier.run(call.progress, done_bytes, total_bytes) ? 0 : 1;
        };
        params.progress_user_data = this;
    }
};

}  // namespace detail

// The devices of this machine: the CPU first, then those of the plug-ins.
class Devices {
  public:
    explicit Devices(const Runtime& runtime)
        : log_(runtime.log()),
          handle_(detail::create<HandleType>([&](minim_devices** out, minim_error* error) {
              return minim_devices_list(runtime.get(), out, error);
          })) {}

    size_t count() const noexcept { return minim_devices_count(handle_.get()); }
    // Its texts are valid as long as the list.
    minim_device_info get(size_t index) const {
        minim_device_info info = MINIM_DEVICE_INFO_INIT;
        detail::check(
            [&](minim_error* error) { return minim_devices_get(handle_.get(), index, &info, error); });
        return info;
    }

  private:
    using HandleType = detail::Handle<minim_devices, minim_devices_free>;
    std::shared_ptr<Log> log_;
    HandleType handle_;
};

struct PlanOptions {
    std::optional<std::vector<std::string>>
        devices;       // "cuda:0=96GiB,1790GB/s,pcie=50GB/s"; empty: those of this machine
    std::string host;  // "768GiB,576GB/s"; "": this machine
    int64_t n_context = 0;
    int32_t n_sequences = 1;
    int32_t n_ubatch = 0;  // 0: chosen
    int32_t k_format = MINIM_KV_AUTO;
    int32_t v_format = MINIM_KV_AUTO;
    std::string overrides;      // "PATTERN=DEVICE,..."
    std::vector<double> split;  // each device's share of the layers
    int32_t n_device_layers = 0;
    bool for_engine = false;  // the sequences share a KV cache, whose size is chosen
    int64_t n_host_experts = 0;
    uint64_t expert_cache_bytes = 0;
    int32_t tensor_parallel = 0;  // ranks that share every layer, or MINIM_ALL_RANKS
    int32_t expert_parallel = 0;  // groups of ranks with whole experts, or MINIM_ALL_RANKS
    int32_t pipeline_parallel = 0;
    std::string link;  // between ranks, "9us,20GB/s"; "": by the devices
};

// Plans where the weights of a checkpoint go, as JSON (minim_plan_make).
inline std::string plan(const Runtime& runtime, const std::string& path, const PlanOptions& options) {
    std::vector<const char*> devices;
    if (options.devices)
        for (const std::string& device : *options.devices) devices.push_back(device.c_str());
    devices.push_back(nullptr);  // so that there is an address without devices, too
    minim_plan_params params = MINIM_PLAN_PARAMS_INIT;
    params.devices = options.devices ? devices.data() : nullptr;
    params.n_devices = options.devices ? options.devices->size() : 0;
    params.host = options.host.empty() ? nullptr : options.host.c_str();
    params.n_context = options.n_context;
    params.n_sequences = options.n_sequences;
    params.n_ubatch = options.n_ubatch;
    params.k_format = options.k_format;
    params.v_format = options.v_format;
    params.overrides = options.overrides.empty() ? nullptr : options.overrides.c_str();
    params.split = options.split.empty() ? nullptr : options.split.data();
    params.n_split = options.split.size();
    params.n_device_layers = options.n_device_layers;
    params.for_engine = options.for_engine ? 1 : 0;
    params.n_host_experts = options.n_host_experts;
    params.expert_cache_bytes = options.expert_cache_bytes;
    params.tensor_parallel = options.tensor_parallel;
    params.expert_parallel = options.expert_parallel;
    params.pipeline_parallel = options.pipeline_parallel;
    params.link = options.link.empty() ? nullptr : options.link.c_str();
    minim_text* text = nullptr;
    detail::check([&](minim_error* error) {
        return minim_plan_make(runtime.get(), path.c_str(), &params, &text, error);
    });
    return Text(text).str();
}

// The result of the callback is whether to continue, as of every callback here.
using ConvertProgress = std::function<bool(const minim_convert_progress& progress)>;

// As minim_convert_params, with texts that are empty instead of null.
struct ConvertOptions {
    std::string recipe;              // "Q4_K_M": quantise; "": convert
    std::string type;                // of a conversion; "": keep
    std::vector<std::string> rules;  // "PATTERN=TYPE"
    std::string output_type;
    std::string embedding_type;
    bool keep_output = false;
    bool pure = false;
    bool allow_requantize = false;
    bool without_importance = false;
    std::string imatrix;
    std::vector<std::string> include_weights;
    std::vector<std::string> exclude_weights;
    int32_t effort = MINIM_CONVERT_EFFORT_FULL;
    bool hashes = true;
    std::string name;
    std::vector<std::string> unset;
    std::vector<std::string> set;       // "KEY=VALUE"
    std::vector<std::string> set_text;  // "KEY=TEXT"
    uint64_t part_bytes = 0;
    int64_t part_tensors = 0;
    bool first_part_empty = false;
    bool keep_parts = false;
    bool dry_run = false;
    bool overwrite = false;
    bool restart = false;
    bool verify = true;
    uint64_t memory_bytes = 0;
    ConvertProgress progress;
    std::string layout;        // of a folder
    std::string keep_experts;  // a number, or a file
    std::string reuse;         // an earlier output
    std::string container;     // "gguf" or "safetensors"; "": by the output's name
};

// Converts or quantises a checkpoint. Returns the report as JSON (minim_convert).
inline std::string convert(const Runtime& runtime, const std::string& source, const std::string& output,
                           const ConvertOptions& options = {}, const Cancel* cancel = nullptr) {
    const auto pointers = [](const std::vector<std::string>& texts) {
        std::vector<const char*> all(texts.size());
        std::transform(texts.begin(), texts.end(), all.begin(),
                       [](const std::string& text) { return text.c_str(); });
        return all;
    };
    const std::vector<const char*> rules = pointers(options.rules);
    const std::vector<const char*> include_weights = pointers(options.include_weights);
    const std::vector<const char*> exclude_weights = pointers(options.exclude_weights);
    const std::vector<const char*> unset = pointers(options.unset);
    const std::vector<const char*> set = pointers(options.set);
    const std::vector<const char*> set_text = pointers(options.set_text);
    minim_convert_params params = MINIM_CONVERT_PARAMS_INIT;
    params.recipe = detail::text_or_null(options.recipe);
    params.matrix_type = detail::text_or_null(options.type);
    params.rules = rules.data();
    params.n_rules = rules.size();
    params.output_type = detail::text_or_null(options.output_type);
    params.embedding_type = detail::text_or_null(options.embedding_type);
    params.keep_output = options.keep_output ? 1 : 0;
    params.pure = options.pure ? 1 : 0;
    params.allow_requantize = options.allow_requantize ? 1 : 0;
    params.without_importance = options.without_importance ? 1 : 0;
    params.imatrix = detail::text_or_null(options.imatrix);
    params.include_weights = include_weights.data();
    params.n_include_weights = include_weights.size();
    params.exclude_weights = exclude_weights.data();
    params.n_exclude_weights = exclude_weights.size();
    params.effort = options.effort;
    params.no_hashes = options.hashes ? 0 : 1;
    params.name = detail::text_or_null(options.name);
    params.unset = unset.data();
    params.n_unset = unset.size();
    params.set = set.data();
    params.n_set = set.size();
    params.set_text = set_text.data();
    params.n_set_text = set_text.size();
    params.part_bytes = options.part_bytes;
    params.part_tensors = options.part_tensors;
    params.first_part_empty = options.first_part_empty ? 1 : 0;
    params.keep_parts = options.keep_parts ? 1 : 0;
    params.dry_run = options.dry_run ? 1 : 0;
    params.overwrite = options.overwrite ? 1 : 0;
    params.restart = options.restart ? 1 : 0;
    params.no_verify = options.verify ? 0 : 1;
    params.memory_bytes = options.memory_bytes;
    params.layout = detail::text_or_null(options.layout);
    params.keep_experts = detail::text_or_null(options.keep_experts);
    params.reuse = detail::text_or_null(options.reuse);
    params.container = detail::text_or_null(options.container);
    struct State {
        const ConvertProgress& progress;
        detail::Carrier carrier;
    } state{options.progress, {}};
    if (options.progress) {
        params.progress = [](void* user_data, const minim_convert_progress* progress) -> int32_t {
            auto& s = *static_cast<State*>(user_data);
            return s.carrier.run(s.progress, *progress) ? 0 : 1;
        };
        params.progress_user_data = &state;
    }
    minim_text* report = nullptr;
    minim_error error = MINIM_ERROR_INIT;
    const minim_status status = minim_convert(runtime.get(), source.c_str(), output.c_str(), &params,
                                              minim::get(cancel), &report, &error);
    const Text text(report);
    state.carrier.rethrow();
    if (status != MINIM_OK) throw Exception(error);
    return text.str();
}

struct ModelOptions {
    std::string backend;          // "": "cpu"
    std::string devices;          // "cuda:0,cuda:1"; "": the backend has all layers
    std::vector<double> split;    // each device's share of the layers; empty: by the memory that may be taken
    int32_t n_device_layers = 0;  // layers on the devices, the last ones; 0: all
    bool allow_cpu = false;       // leave out devices that cannot be used
    std::vector<uint64_t> budgets;  // bytes to use of each device at most; 0: no limit; empty: no limits
    std::string overrides;       // "PATTERN=DEVICE,...": experts on another device than their layer; "": none
    int64_t n_host_experts = 0;  // experts of the first n layers stay on the backend; below 0: of the last n
    int64_t fit_context = 0;  // keep experts on the backend to leave room for a context of this length; 0: no
    int32_t fit_n_ubatch = 0;  // rows of a prompt step that room is left for; 0: what a plan finds best
    int32_t residence = MINIM_RESIDENCE_AUTO;
    bool engine_tokenizer = false;
    Progress progress;
    bool lock = false;                   // lock weights and KV cache in host memory
    bool prefault = false;               // prefault mapped weights before the model is ready
    bool deterministic = false;          // results of devices do not depend on batch composition; slower
    int32_t expand = MINIM_EXPAND_AUTO;  // unpack codebooks of IQ1 to IQ3 at load
    std::string packed_file;  // file with the backend's packed weights, created if needed; "": none
    // Room on the devices for a cache of experts; MINIM_EXPERT_CACHE_ROOM: what is left beside the context; 0: none,
    // unless no field places experts
    uint64_t expert_cache_bytes = 0;
    int32_t expert_moves = MINIM_EXPERT_MOVES_AUTO;
    int32_t fit_k_format = MINIM_KV_AUTO;  // of the context that room is left for
    int32_t fit_v_format = MINIM_KV_AUTO;
    std::string expert_profile;  // file that says which experts to cache first; "": none
    int64_t fit_requests = 0;    // leave room for an engine of so many requests; 0: for one context
    std::string chat_template;  // text of a Jinja template in place of the checkpoint's; "": the checkpoint's
    // Ranks that share the layers (minim_model_params); -1: all; 0: not shared. On processes other than 0, call follow().
    int32_t tensor_parallel = 0;
    int32_t expert_parallel = 0;
    int32_t pipeline_parallel = 0;
    int32_t rank_timeout_ms = 0;  // how long a rank may not answer within a step; 0: 30 s

    // Without progress. Valid as long as this object is unchanged.
    minim_model_params params() const noexcept {
        minim_model_params params = MINIM_MODEL_PARAMS_INIT;
        params.backend = detail::text_or_null(backend);
        params.residence = residence;
        params.engine_tokenizer = engine_tokenizer ? 1 : 0;
        params.devices = detail::text_or_null(devices);
        params.split = split.empty() ? nullptr : split.data();
        params.n_split = split.size();
        params.n_device_layers = n_device_layers;
        params.allow_cpu = allow_cpu ? 1 : 0;
        params.budgets = budgets.empty() ? nullptr : budgets.data();
        params.n_budgets = budgets.size();
        params.overrides = detail::text_or_null(overrides);
        params.n_host_experts = n_host_experts;
        params.fit_context = fit_context;
        params.fit_n_ubatch = fit_n_ubatch;
        params.lock = lock ? 1 : 0;
        params.prefault = prefault ? 1 : 0;
        params.deterministic = deterministic ? 1 : 0;
        params.expand = expand;
        params.packed_file = detail::text_or_null(packed_file);
        params.expert_cache_bytes = expert_cache_bytes;
        params.expert_moves = expert_moves;
        params.fit_k_format = fit_k_format;
        params.fit_v_format = fit_v_format;
        params.expert_profile = detail::text_or_null(expert_profile);
        params.fit_requests = fit_requests;
        params.chat_template = detail::text_or_null(chat_template);
        params.tensor_parallel = tensor_parallel;
        params.expert_parallel = expert_parallel;
        params.pipeline_parallel = pipeline_parallel;
        params.rank_timeout_ms = rank_timeout_ms;
        return params;
    }
};

struct CheckOptions {
    bool quick = false;
    bool wants_sums = false;
    bool wants_answers = false;
    bool machine = false;   // also kernels, devices and storage of this machine
    std::string sums;       // as sha256sum writes them; "": none
    std::string answers;    // of another report; "": none
    std::string reference;  // path of a checkpoint of the same model; "": none
    ModelOptions model;     // for what is computed
    Progress progress;
};

// Checks a checkpoint. Returns a report as JSON (minim_check).
inline std::string check(const Runtime& runtime, const std::string& path, const CheckOptions& options = {},
                         const Cancel* cancel = nullptr) {
    detail::ProgressCall call{options.progress};
    const minim_model_params model = options.model.params();
    minim_check_params params = MINIM_CHECK_PARAMS_INIT;
    params.quick = options.quick ? 1 : 0;
    params.wants_sums = options.wants_sums ? 1 : 0;
    params.wants_answers = options.wants_answers ? 1 : 0;
    params.machine = options.machine ? 1 : 0;
    params.sums = detail::text_or_null(options.sums);
    params.answers = detail::text_or_null(options.answers);
    params.reference = detail::text_or_null(options.reference);
    params.model = &model;
    call.set(params);
    minim_text* report = nullptr;
    minim_error error = MINIM_ERROR_INIT;
    const minim_status status =
        minim_check(runtime.get(), path.c_str(), &params, minim::get(cancel), &report, &error);
    const Text text(report);
    call.carrier.rethrow();
    if (status != MINIM_OK) throw Exception(error);
    return text.str();
}

// Options of rendering a conversation: the fields of minim_chat_params, "" for none.
struct ChatOptions {
    std::string tools;
    std::string kwargs;
    std::string template_name;
    bool null_content_is_empty = false;
    bool thinking_off = false;
    bool continue_final_message = false;

    // Valid as long as this object is unchanged.
    minim_chat_params params() const noexcept {
        minim_chat_params params = MINIM_CHAT_PARAMS_INIT;
        params.null_content = null_content_is_empty ? MINIM_NULL_CONTENT_EMPTY : MINIM_NULL_CONTENT_TEMPLATE;
        params.tools = detail::text_or_null(tools);
        params.kwargs = detail::text_or_null(kwargs);
        params.template_name = detail::text_or_null(template_name);
        params.thinking_off = thinking_off ? 1 : 0;
        params.continue_final_message = continue_final_message ? 1 : 0;
        return params;
    }
};

class Model {
  public:
    Model(const Runtime& runtime, const std::string& path, const ModelOptions& options = {},
          const Cancel* cancel = nullptr)
        : Model(runtime, options,
                [&](const minim_model_params* params, minim_model** model, minim_error* error) {
                    return minim_model_open(runtime.get(), path.c_str(), params, minim::get(cancel), model,
                                            error);
                }) {}

    // A descriptor of a GGUF file or a folder, which the caller may close afterwards.
    static Model open_fd(const Runtime& runtime, int32_t descriptor, const ModelOptions& options = {},
                         const Cancel* cancel = nullptr) {
        return Model(runtime, options,
                     [&](const minim_model_params* params, minim_model** model, minim_error* error) {
                         return minim_model_open_fd(runtime.get(), descriptor, params, minim::get(cancel),
                                                    model, error);
                     });
    }

    minim_model_info info() const {
        minim_model_info info{};
        info.size = sizeof(info);
        detail::check([&](minim_error* error) { return minim_model_get_info(handle_.get(), &info, error); });
        return info;
    }

    // Computes this process's share until process 0 closes the model: for processes other than 0 (info().process).
    void follow() {
        detail::check([&](minim_error* error) { return minim_model_follow(handle_.get(), error); });
    }

    // Throws the error that ended the work of the ranks, if they are several and one is lost.
    void check() const {
        detail::check([&](minim_error* error) { return minim_model_check(handle_.get(), error); });
    }

    // Returns one entry for each NUMA node with cores for this process or weights of this model: the weights in its memory.
    std::vector<minim_node_memory> nodes() const {
        std::vector<minim_node_memory> nodes;
        size_t count = 0;
        do {
            const minim_node_memory node = MINIM_NODE_MEMORY_INIT;
            nodes.assign(count, node);
            detail::check([&](minim_error* error) {
                return minim_model_nodes(handle_.get(), nodes.data(), nodes.size(), &count, error);
            });
        } while (count > nodes.size());
        nodes.resize(count);
        return nodes;
    }

    // Returns the devices of a layer and of its experts, as indices into memory().
    minim_layer_devices layer_devices(int32_t layer) const {
        minim_layer_devices devices = MINIM_LAYER_DEVICES_INIT;
        detail::check([&](minim_error* error) {
            return minim_model_layer_devices(handle_.get(), layer, &devices, error);
        });
        return devices;
    }

    // Returns the memory in use on each device now, in the order of the layers; devices with only experts come last.
    // The names are valid as long as the model.
    std::vector<minim_device_memory> memory() const {
        std::vector<minim_device_memory> all(minim_model_device_count(handle_.get()));
        for (size_t i = 0; i < all.size(); ++i) {
            all[i] = MINIM_DEVICE_MEMORY_INIT;
            detail::check([&](minim_error* error) {
                return minim_model_device_memory(handle_.get(), i, &all[i], error);
            });
        }
        return all;
    }

    // Returns the expert cache of each device of memory().
    std::vector<minim_expert_cache> expert_caches() const {
        std::vector<minim_expert_cache> all(minim_model_device_count(handle_.get()));
        for (size_t i = 0; i < all.size(); ++i) {
            all[i] = MINIM_EXPERT_CACHE_INIT;
            detail::check([&](minim_error* error) {
                return minim_model_expert_cache(handle_.get(), i, &all[i], error);
            });
        }
        return all;
    }

    // Writes which experts were used recently, for ModelOptions::expert_profile.
    void save_expert_profile(const std::string& path) const {
        detail::check([&](minim_error* error) {
            return minim_model_save_expert_profile(handle_.get(), path.c_str(), error);
        });
    }

    Checkpoint checkpoint() const {
        minim_checkpoint* checkpoint = nullptr;
        detail::check(
            [&](minim_error* error) { return minim_model_checkpoint(handle_.get(), &checkpoint, error); });
        return {checkpoint, log_};
    }

    Tokens tokenize(std::string_view text, int32_t specials = MINIM_SPECIALS_EXACT) const {
        minim_tokens* tokens = nullptr;
        detail::check([&](minim_error* error) {
            return minim_tokenize(handle_.get(), text.data(), text.size(), specials, &tokens, error);
        });
        return Tokens(tokens);
    }

    Text detokenize(Ids ids, bool skip_special = false) const {
        minim_text* text = nullptr;
        detail::check([&](minim_error* error) {
            return minim_detokenize(handle_.get(), ids.data(), ids.size(), skip_special ? 1 : 0, &text,
                                    error);
        });
        return Text(text);
    }

    // Returns bits of MINIM_TOKEN_*, or -1.
    int32_t token_attributes(int32_t id) const noexcept { return minim_token_attributes(handle_.get(), id); }

    Text token_text(int32_t id) const {
        minim_text* text = nullptr;
        detail::check([&](minim_error* error) { return minim_token_text(handle_.get(), id, &text, error); });
        return Text(text);
    }

    // JSON as minim_chat_render takes it; "" for no tools and no variables.
    Text chat_render(const std::string& messages, const std::string& tools = {},
                     const std::string& kwargs = {}) const {
        minim_text* text = nullptr;
        detail::check([&](minim_error* error) {
            return minim_chat_render(handle_.get(), messages.c_str(), detail::text_or_null(tools),
                                     detail::text_or_null(kwargs), &text, error);
        });
        return Text(text);
    }

    // With the options of ChatOptions.
    Text chat_render_with(const std::string& messages, const ChatOptions& options) const {
        const minim_chat_params params = options.params();
        minim_text* text = nullptr;
        detail::check([&](minim_error* error) {
            return minim_chat_render_with(handle_.get(), messages.c_str(), &params, &text, error);
        });
        return Text(text);
    }

    Tokens chat_tokenize_with(const std::string& messages, const ChatOptions& options,
                              int32_t specials = MINIM_SPECIALS_SAFE) const {
        const minim_chat_params params = options.params();
        minim_tokens* tokens = nullptr;
        detail::check([&](minim_error* error) {
            return minim_chat_tokenize_with(handle_.get(), messages.c_str(), &params, specials, &tokens,
                                            error);
        });
        return Tokens(tokens);
    }

    Tokens chat_tokenize(const std::string& messages, const std::string& tools = {},
                         const std::string& kwargs = {}, int32_t specials = MINIM_SPECIALS_SAFE) const {
        minim_tokens* tokens = nullptr;
        detail::check([&](minim_error* error) {
            return minim_chat_tokenize(handle_.get(), messages.c_str(), detail::text_or_null(tools),
                                       detail::text_or_null(kwargs), specials, &tokens, error);
        });
        return Tokens(tokens);
    }

    // Returns whether the prompt ends in an open think block.
    bool chat_opens_thinking(const std::vector<int32_t>& prompt) const {
        int32_t opens = 0;
        detail::check([&](minim_error* error) {
            return minim_chat_opens_thinking(handle_.get(), prompt.data(), prompt.size(), &opens, error);
        });
        return opens != 0;
    }

    // Returns whether the prompt leaves it to the model whether the answer begins with reasoning.
    bool chat_may_reason(const std::vector<int32_t>& prompt) const {
        int32_t may_reason = 0;
        detail::check([&](minim_error* error) {
            return minim_chat_may_reason(handle_.get(), prompt.data(), prompt.size(), &may_reason, error);
        });
        return may_reason != 0;
    }

    // Returns the markup of the model's chat format; its texts are always valid.
    minim_chat_markup chat_markup() const {
        minim_chat_markup markup = MINIM_CHAT_MARKUP_INIT;
        detail::check(
            [&](minim_error* error) { return minim_chat_get_markup(handle_.get(), &markup, error); });
        return markup;
    }

    minim_model* get() const noexcept { return handle_.get(); }
    const std::shared_ptr<Log>& log() const noexcept { return log_; }

  private:
    // open(params, out, error) makes the call.
    template <typename Open>
    Model(const Runtime& runtime, const ModelOptions& options, const Open& open) : log_(runtime.log()) {
        detail::ProgressCall call{options.progress};
        minim_model_params params = options.params();
        call.set(params);
        minim_model* model = nullptr;
        minim_error error = MINIM_ERROR_INIT;
        const minim_status status = open(&params, &model, &error);
        handle_.reset(model);
        call.carrier.rethrow();
        if (status != MINIM_OK) throw Exception(error);
    }

    std::shared_ptr<Log> log_;
    detail::Handle<minim_model, minim_model_close> handle_;
};

// The views are valid until the next call on the decoder.
class Decoder {
  public:
    explicit Decoder(const Model& model, bool skip_special = false)
        : log_(model.log()), handle_(detail::create<HandleType>([&](minim_decoder** out, minim_error* error) {
              return minim_decoder_create(model.get(), skip_special ? 1 : 0, out, error);
          })) {}

    std::string_view push(int32_t id) {
        const char* text = nullptr;
        size_t length = 0;
        detail::check(
            [&](minim_error* error) { return minim_decoder_push(handle_.get(), id, &text, &length, error); });
        return {text, length};
    }

    std::string_view finish() {
        const char* text = nullptr;
        size_t length = 0;
        detail::check(
            [&](minim_error* error) { return minim_decoder_finish(handle_.get(), &text, &length, error); });
        return {text, length};
    }

    minim_decoder* get() const noexcept { return handle_.get(); }

  private:
    using HandleType = detail::Handle<minim_decoder, minim_decoder_free>;
    std::shared_ptr<Log> log_;
    HandleType handle_;
};

struct ConstraintOptions {
    std::string
        starts_after;  // an added token, as think_end of chat_markup(); "": the constraint applies from the first token
    bool may_reason = false;  // instead: the answer may begin with reasoning, in the model's markup
    // Only for constraints from tools:
    bool calls_are_optional = false;  // the answer may be text; a call, once it is opened, fits the tools
    bool relax = false;               // ignore keywords that cannot be enforced, with a warning in the log
};

// A constraint on answers: structured output.
class Constraint {
  public:
    static Constraint from_schema(const Model& model, const std::string& schema,
                                  const ConstraintOptions& options = {}) {
        return made(options,
                    [&](const minim_constraint_params& params, minim_constraint** out, minim_error* error) {
                        return minim_constraint_from_schema(model.get(), schema.c_str(), &params, out, error);
                    });
    }

    static Constraint from_regex(const Model& model, const std::string& pattern,
                                 const ConstraintOptions& options = {}) {
        return made(options,
                    [&](const minim_constraint_params& params, minim_constraint** out, minim_error* error) {
                        return minim_constraint_from_regex_n(model.get(), pattern.data(), pattern.size(),
                                                             &params, out, error);
                    });
    }

    // A grammar in GBNF, whose rule `root` is the whole answer.
    static Constraint from_grammar(const Model& model, const std::string& grammar,
                                   const ConstraintOptions& options = {}) {
        return made(options,
                    [&](const minim_constraint_params& params, minim_constraint** out, minim_error* error) {
                        return minim_constraint_from_grammar_n(model.get(), grammar.data(), grammar.size(),
                                                               &params, out, error);
                    });
    }

    static Constraint from_choices(const Model& model, const std::vector<std::string>& choices,
                                   const ConstraintOptions& options = {}) {
        std::vector<const char*> texts;
        std::vector<size_t> lengths;
        for (const std::string& choice : choices) {
            texts.push_back(choice.data());
            lengths.push_back(choice.size());
        }
        return made(options,
                    [&](const minim_constraint_params& params, minim_constraint** out, minim_error* error) {
                        return minim_constraint_from_choices_n(model.get(), texts.data(), lengths.data(),
                                                               texts.size(), &params, out, error);
                    });
    }

    // Allows tool calls; tools as JSON of a chat request. `name`: the tool to call, "" for any; `single`: exactly one call.
    static Constraint from_tools(const Model& model, const std::string& tools, const std::string& name = {},
                                 bool single = false, const ConstraintOptions& options = {}) {
        return made(
            options, [&](const minim_constraint_params& params, minim_constraint** out, minim_error* error) {
                return minim_constraint_from_tools(model.get(), tools.c_str(), detail::text_or_null(name),
                                                   single ? 1 : 0, &params, out, error);
            });
    }

    // Returns whether the constraint allows the whole text.
    bool matches(std::string_view text) const {
        int32_t result = 0;
        detail::check([&](minim_error* error) {
            return minim_constraint_matches(get(), text.data(), text.size(), &result, error);
        });
        return result != 0;
    }

    const minim_constraint* get() const noexcept { return handle_.get(); }

  private:
    using HandleType = detail::Handle<minim_constraint, minim_constraint_free>;
    explicit Constraint(HandleType handle) : handle_(std::move(handle)) {}

    template <typename Call>
    static Constraint made(const ConstraintOptions& options, Call call) {
        minim_constraint_params params = MINIM_CONSTRAINT_PARAMS_INIT;
        params.starts_after = detail::text_or_null(options.starts_after);
        params.calls_are_optional = options.calls_are_optional ? 1 : 0;
        params.relax = options.relax ? 1 : 0;
        params.may_reason = options.may_reason ? 1 : 0;
        return Constraint(detail::create<HandleType>(
            [&](minim_constraint** out, minim_error* error) { return call(params, out, error); }));
    }

    HandleType handle_;
};

struct OutputParserOptions {
    int32_t reasoning = MINIM_REASONING_SPLIT;
    bool starts_in_content = false;
    std::string tools;                      // JSON as in a chat request; "": no call is recognised
    int32_t format = MINIM_CHAT_FORMAT_M2;  // of the model: Model::chat_markup().format

    // Valid as long as this is unchanged.
    minim_output_parser_params params() const noexcept {
        minim_output_parser_params params = MINIM_OUTPUT_PARSER_PARAMS_INIT;
        params.reasoning = reasoning;
        params.starts_in_content = starts_in_content ? 1 : 0;
        params.tools = detail::text_or_null(tools);
        params.format = format;
        return params;
    }
};

// Parses output while it is generated. One thread at a time.
class OutputParser {
  public:
    explicit OutputParser(const OutputParserOptions& options = {})
        : handle_(detail::create<HandleType>([&](minim_output_parser** out, minim_error* error) {
              const minim_output_parser_params params = options.params();
              return minim_output_parser_create(&params, out, error);
          })) {}

    // Adds bytes and calls on_delta(const minim_output_delta&) for each new delta.
    template <typename OnDelta>
    void feed(std::string_view text, OnDelta&& on_delta) {
        size_t count = 0;
        detail::check([&](minim_error* error) {
            return minim_output_parser_feed(handle_.get(), text.data(), text.size(), &count, error);
        });
        hand_out(count, on_delta);
    }

    // Ends the output and calls on_delta for the last deltas; `finish` and the result are MINIM_FINISH_*.
    template <typename OnDelta>
    int32_t finish(int32_t finish, OnDelta&& on_delta) {
        size_t count = 0;
        int32_t reason = MINIM_FINISH_NONE;
        detail::check([&](minim_error* error) {
            return minim_output_parser_finish(handle_.get(), finish, &count, &reason, error);
        });
        hand_out(count, on_delta);
        return reason;
    }

    minim_output_parser* get() const noexcept { return handle_.get(); }

  private:
    template <typename OnDelta>
    void hand_out(size_t count, OnDelta& on_delta) {
        for (size_t i = 0; i < count; ++i) {
            minim_output_delta delta = MINIM_OUTPUT_DELTA_INIT;
            detail::check([&](minim_error* error) {
                return minim_output_parser_delta(handle_.get(), i, &delta, error);
            });
            on_delta(static_cast<const minim_output_delta&>(delta));
        }
    }

    using HandleType = detail::Handle<minim_output_parser, minim_output_parser_free>;
    HandleType handle_;
};

// A complete parsed output.
struct Output {
    struct Call {
        std::string name;
        std::string arguments;  // JSON
    };
    std::optional<std::string> content;
    std::optional<std::string> reasoning;
    std::vector<Call> calls;
    int32_t finish_reason = MINIM_FINISH_NONE;
};

inline Output parse_output(std::string_view text, int32_t finish, const OutputParserOptions& options = {}) {
    const minim_output_parser_params params = options.params();
    const auto handle = detail::create<detail::Handle<minim_output, minim_output_free>>(
        [&](minim_output** out, minim_error* error) {
            return minim_output_parse(&params, text.data(), text.size(), finish, out, error);
        });
    minim_output_info info = MINIM_OUTPUT_INFO_INIT;
    detail::check([&](minim_error* error) { return minim_output_get_info(handle.get(), &info, error); });
    Output output;
    output.finish_reason = info.finish_reason;
    if (info.content != nullptr) output.content.emplace(info.content, info.content_length);
    if (info.reasoning != nullptr) output.reasoning.emplace(info.reasoning, info.reasoning_length);
    for (size_t i = 0; i < info.n_tool_calls; ++i) {
        minim_tool_call call = MINIM_TOOL_CALL_INIT;
        detail::check(
            [&](minim_error* error) { return minim_output_get_tool_call(handle.get(), i, &call, error); });
        output.calls.push_back({{call.name, call.name_length}, {call.arguments, call.arguments_length}});
    }
    return output;
}

class Sampling {
  public:
    Sampling() : handle_(detail::create<HandleType>(minim_sampling_create)) {}

    // Sets an option by name; minim_sampling_option lists them.
    template <typename Value>
    Sampling& set(const char* name, Value value) {
        static_assert(std::is_arithmetic_v<Value>, "options are integers and numbers");
        detail::check([&](minim_error* error) {
            if constexpr (std::is_floating_point_v<Value>) {
                return minim_sampling_set_f64(handle_.get(), name, static_cast<double>(value), error);
            } else {
                return minim_sampling_set_i64(handle_.get(), name, static_cast<int64_t>(value), error);
            }
        });
        return *this;
    }

    // Sets the values that the makers of the model's checkpoint recommend.
    Sampling& set_recommended(const Model& model) {
        detail::check([&](minim_error* error) {
            return minim_sampling_set_recommended(handle_.get(), model.get(), error);
        });
        return *this;
    }

    // Sets the texts that end repetitions for DRY, instead of the default ones.
    Sampling& set_dry_breakers(const std::vector<std::string>& texts) {
        std::vector<const char*> data;
        std::vector<size_t> lengths;
        for (const std::string& text : texts) {
            data.push_back(text.data());
            lengths.push_back(text.size());
        }
        detail::check([&](minim_error* error) {
            return minim_sampling_set_dry_breakers(handle_.get(), data.data(), lengths.data(), data.size(),
                                                   error);
        });
        return *this;
    }

    Sampling& add_stop(std::string_view text) {
        detail::check([&](minim_error* error) {
            return minim_sampling_add_stop(handle_.get(), text.data(), text.size(), error);
        });
        return *this;
    }

    Sampling& add_stop_token(int32_t id) {
        detail::check(
            [&](minim_error* error) { return minim_sampling_add_stop_token(handle_.get(), id, error); });
        return *this;
    }

    Sampling& add_logit_bias(int32_t id, float bias) {
        detail::check([&](minim_error* error) {
            return minim_sampling_add_logit_bias(handle_.get(), id, bias, error);
        });
        return *this;
    }

    Sampling& set_constraint(const Constraint& constraint) {
        detail::check([&](minim_error* error) {
            return minim_sampling_set_constraint(handle_.get(), constraint.get(), error);
        });
        return *this;
    }

    const minim_sampling* get() const noexcept { return handle_.get(); }

  private:
    using HandleType = detail::Handle<minim_sampling, minim_sampling_free>;
    HandleType handle_;
};

struct SessionOptions {
    uint64_t max_context = 0;
    int32_t k_format = MINIM_KV_AUTO;
    int32_t v_format = MINIM_KV_AUTO;
    int32_t n_batch = 0;
    int32_t n_ubatch = 0;
};

class Session {
  public:
    explicit Session(const Model& model, const SessionOptions& options = {})
        : log_(model.log()), n_vocab_(static_cast<size_t>(model.info().n_vocab)) {
        const minim_session_params params = c_params(options);
        handle_ = detail::create<HandleType>([&](minim_session** out, minim_error* error) {
            return minim_session_create(model.get(), &params, out, error);
        });
    }

    static Session restore(const Model& model, const std::string& path, const SessionOptions& options = {},
                           const Cancel* cancel = nullptr) {
        const minim_session_params params = c_params(options);
        return restored(model, [&](minim_session** out, minim_error* error) {
            return minim_session_restore(model.get(), path.c_str(), &params, minim::get(cancel), out, error);
        });
    }

    // Restores the bytes of save_bytes(), which are not needed afterwards.
    static Session restore_bytes(const Model& model, const void* data, size_t size,
                                 const SessionOptions& options = {}, const Cancel* cancel = nullptr) {
        const minim_session_params params = c_params(options);
        return restored(model, [&](minim_session** out, minim_error* error) {
            return minim_session_restore_memory(model.get(), data, size, &params, minim::get(cancel), out,
                                                error);
        });
    }

    // Restores from the position of a file's descriptor on, and moves it behind the session.
    static Session restore_fd(const Model& model, int32_t descriptor, const SessionOptions& options = {},
                              const Cancel* cancel = nullptr) {
        const minim_session_params params = c_params(options);
        return restored(model, [&](minim_session** out, minim_error* error) {
            return minim_session_restore_fd(model.get(), descriptor, &params, minim::get(cancel), out, error);
        });
    }

    std::vector<unsigned char> save_bytes(const Cancel* cancel = nullptr) {
        std::vector<unsigned char> bytes;
        const auto save = [&](minim_error* error) {
            size_t size = 0;
            const minim_status status =
                minim_session_save_memory(handle_.get(), bytes.empty() ? nullptr : bytes.data(), bytes.size(),
                                          &size, minim::get(cancel), error);
            if (status == MINIM_OK) bytes.resize(size);
            return status;
        };
        detail::check(save);  // the size
        detail::check(save);
        return bytes;
    }

    // Writes to a descriptor from its position on: a file, a pipe or a socket.
    void save_fd(int32_t descriptor, const Cancel* cancel = nullptr) {
        detail::check([&](minim_error* error) {
            return minim_session_save_fd(handle_.get(), descriptor, minim::get(cancel), error);
        });
    }

    void save(const std::string& path, const Cancel* cancel = nullptr) {
        detail::check([&](minim_error* error) {
            return minim_session_save(handle_.get(), path.c_str(), minim::get(cancel), error);
        });
    }

    Session fork() {
        return Session(log_, n_vocab_,
                       detail::create<HandleType>([&](minim_session** out, minim_error* error) {
                           return minim_session_fork(handle_.get(), out, error);
                       }));
    }

    size_t token_count() const noexcept { return minim_session_token_count(handle_.get()); }
    Tokens tokens() const {
        minim_tokens* tokens = nullptr;
        detail::check(
            [&](minim_error* error) { return minim_session_get_tokens(handle_.get(), &tokens, error); });
        return Tokens(tokens);
    }
    size_t context_size() const noexcept { return minim_session_context_size(handle_.get()); }
    uint64_t kv_bytes() const noexcept { return minim_session_kv_bytes(handle_.get()); }

    void truncate(size_t count) {
        detail::check(
            [&](minim_error* error) { return minim_session_truncate(handle_.get(), count, error); });
    }

    // Logits [ids.size(), n_vocab] of every token, or [1, n_vocab] of the last one, in `logits`, which is
    // resized.
    void eval(Ids ids, bool all_logits, std::vector<float>& logits, const Cancel* cancel = nullptr) {
        logits.resize((all_logits ? ids.size() : 1) * n_vocab_);
        detail::check([&](minim_error* error) {
            return minim_session_eval(handle_.get(), ids.data(), ids.size(), all_logits ? 1 : 0,
                                      logits.data(), logits.size(), minim::get(cancel), error);
        });
    }

    std::vector<float> eval(Ids ids, bool all_logits = false, const Cancel* cancel = nullptr) {
        std::vector<float> logits;
        eval(ids, all_logits, logits, cancel);
        return logits;
    }

    // on_token(const minim_token&) returns nothing, or false to stop. After an exception, state() tells what was
    // kept, if the prompt had been evaluated.
    template <typename OnToken>
    minim_generate_result generate(const Sampling& sampling, Ids prompt, OnToken&& on_token,
                                   const Cancel* cancel = nullptr) {
        struct State {
            std::remove_reference_t<OnToken>& on_token;
            detail::Carrier carrier;
        } state{on_token, {}};
        const minim_token_fn forward = [](void* user_data, const minim_token* token) -> int32_t {
            State& s = *static_cast<State*>(user_data);
            return s.carrier.run(s.on_token, *token) ? 0 : 1;
        };
        minim_generate_result result = MINIM_GENERATE_RESULT_INIT;
        minim_error error = MINIM_ERROR_INIT;
        const minim_status status =
            minim_generate(handle_.get(), sampling.get(), prompt.data(), prompt.size(), forward, &state,
                           minim::get(cancel), &result, &error);
        state.carrier.rethrow();
        if (status != MINIM_OK) throw Exception(error);
        return result;
    }

    // Generate with one token for each call: begin, then next until it returns none.
    void begin(const Sampling& sampling, Ids prompt, const Cancel* cancel = nullptr) {
        detail::check([&](minim_error* error) {
            return minim_generate_begin(handle_.get(), sampling.get(), prompt.data(), prompt.size(),
                                        minim::get(cancel), error);
        });
    }

    // Its pointers are valid until the next call on the session.
    std::optional<minim_token> next(const Cancel* cancel = nullptr) {
        minim_token token{};
        token.size = sizeof(token);
        int32_t has_token = 0;
        detail::check([&](minim_error* error) {
            return minim_generate_next(handle_.get(), &token, &has_token, minim::get(cancel), error);
        });
        if (has_token == 0) return std::nullopt;
        return token;
    }

    minim_generate_result state() const {
        minim_generate_result result = MINIM_GENERATE_RESULT_INIT;
        detail::check(
            [&](minim_error* error) { return minim_generate_state(handle_.get(), &result, error); });
        return result;
    }

    minim_session* get() const noexcept { return handle_.get(); }

  private:
    using HandleType = detail::Handle<minim_session, minim_session_free>;

    Session(std::shared_ptr<Log> log, size_t n_vocab, HandleType handle)
        : log_(std::move(log)), handle_(std::move(handle)), n_vocab_(n_vocab) {}

    template <typename Restore>
    static Session restored(const Model& model, const Restore& restore) {
        return Session(model.log(), static_cast<size_t>(model.info().n_vocab),
                       detail::create<HandleType>(restore));
    }

    static minim_session_params c_params(const SessionOptions& options) {
        minim_session_params params = MINIM_SESSION_PARAMS_INIT;
        params.max_context = options.max_context;
        params.k_format = options.k_format;
        params.v_format = options.v_format;
        params.n_batch = options.n_batch;
        params.n_ubatch = options.n_ubatch;
        return params;
    }

    std::shared_ptr<Log> log_;
    HandleType handle_;
    size_t n_vocab_ = 0;
};

struct RequestOptions {
    int32_t priority = 0;
    int64_t timeout_ms = 0;
    // Called on the engine's thread when a request has something new; it must not block, and its exceptions are dropped.
    std::function<void()> notify = {};
    // An eventfd, or a non-blocking pipe or socket, which gets 8 bytes then (minim_notify_fd); without `notify`. -1: none.
    int32_t notify_fd = -1;
};

// One request to an engine. It may outlive the engine.
class Request {
  public:
    enum class Next { end = MINIM_NEXT_END, token = MINIM_NEXT_TOKEN, pending = MINIM_NEXT_PENDING };

    // Waits at most timeout_ms; negative: without limit. The token's pointers are valid until the
    // next call.
    Next next(minim_token& token, int64_t timeout_ms = -1) {
        token = minim_token{};
        token.size = sizeof(token);
        int32_t what = MINIM_NEXT_PENDING;
        detail::check([&](minim_error* error) {
            return minim_request_next(handle_.get(), timeout_ms, &token, &what, error);
        });
        return static_cast<Next>(what);
    }

    void cancel() noexcept { minim_request_cancel(handle_.get()); }

    minim_request_state state() const {
        minim_request_state state = MINIM_REQUEST_STATE_INIT;
        detail::check(
            [&](minim_error* error) { return minim_request_get_state(handle_.get(), &state, error); });
        return state;
    }

    minim_request* get() const noexcept { return handle_.get(); }

  private:
    friend class Engine;
    using HandleType = detail::Handle<minim_request, minim_request_free>;
    using Notify = std::shared_ptr<std::function<void()>>;
    Request(std::shared_ptr<Log> log, Notify notify, HandleType handle)
        : log_(std::move(log)), notify_(std::move(notify)), handle_(std::move(handle)) {}

    std::shared_ptr<Log> log_;
    Notify notify_;  // not called any more once the handle is released
    HandleType handle_;
};

struct EngineOptions {
    uint64_t kv_tokens = 0;
    int32_t k_format = MINIM_KV_AUTO;
    int32_t v_format = MINIM_KV_AUTO;
    int32_t n_requests = 0;
    int32_t n_batch = 0;
    int32_t n_prompt_rows = 0;
    bool forget_prefixes = false;
    uint64_t max_context = 0;       // tokens of one request; 0: what fits, at most the trained context
    bool fewer_requests = false;    // n_requests may be reduced if memory is short
    bool warm_up = false;           // compute two small steps first
    uint64_t host_cache_bytes = 0;  // limit of prompt states in host memory; UINT64_MAX: what is free
};

// Serves many requests at once, on a thread of its own. The destructor ends running requests.
class Engine {
  public:
    explicit Engine(const Model& model, const EngineOptions& options = {}) : log_(model.log()) {
        minim_engine_params params = MINIM_ENGINE_PARAMS_INIT;
        params.kv_tokens = options.kv_tokens;
        params.k_format = options.k_format;
        params.v_format = options.v_format;
        params.n_requests = options.n_requests;
        params.n_batch = options.n_batch;
        params.n_prompt_rows = options.n_prompt_rows;
        params.forget_prefixes = options.forget_prefixes ? 1 : 0;
        params.max_context = options.max_context;
        params.fewer_requests = options.fewer_requests ? 1 : 0;
        params.warm_up = options.warm_up ? 1 : 0;
        params.host_cache_bytes = options.host_cache_bytes;
        handle_ = detail::create<HandleType>([&](minim_engine** out, minim_error* error) {
            return minim_engine_create(model.get(), &params, out, error);
        });
    }

    Request submit(const Sampling& sampling, Ids prompt, const RequestOptions& options = {}) {
        const auto notify = notify_of(options);
        const minim_request_params params = c_params(options, notify);
        return Request(log_, notify,
                       detail::create<Request::HandleType>([&](minim_request** out, minim_error* error) {
                           return minim_engine_submit(handle_.get(), sampling.get(), prompt.data(),
                                                      prompt.size(), &params, out, error);
                       }));
    }

    // Submits requests for several answers to one prompt, which share its KV cache.
    std::vector<Request> submit_n(const Sampling& sampling, Ids prompt, size_t n_answers,
                                  const RequestOptions& options = {}) {
        const auto notify = notify_of(options);
        const minim_request_params params = c_params(options, notify);
        std::vector<minim_request*> made(n_answers);
        std::vector<Request> requests;
        requests.reserve(n_answers);
        detail::check([&](minim_error* error) {
            return minim_engine_submit_n(handle_.get(), sampling.get(), prompt.data(), prompt.size(), &params,
                                         n_answers, made.data(), error);
        });
        for (minim_request* request : made)
            requests.push_back(Request(log_, notify, Request::HandleType(request)));
        return requests;
    }

    // Refuses new requests and waits for the running ones. Returns true if they are done within timeout_ms.
    bool drain(int64_t timeout_ms = -1) {
        int32_t done = 0;
        detail::check(
            [&](minim_error* error) { return minim_engine_drain(handle_.get(), timeout_ms, &done, error); });
        return done != 0;
    }

    minim_engine_state state() const {
        minim_engine_state state = MINIM_ENGINE_STATE_INIT;
        detail::check(
            [&](minim_error* error) { return minim_engine_get_state(handle_.get(), &state, error); });
        return state;
    }

    void save_prefixes(const std::string& path, const Cancel* cancel = nullptr) {
        detail::check([&](minim_error* error) {
            return minim_engine_save_prefixes(handle_.get(), path.c_str(), minim::get(cancel), error);
        });
    }

    // Returns the number of pages read.
    uint64_t load_prefixes(const std::string& path, const Cancel* cancel = nullptr) {
        uint64_t n_pages = 0;
        detail::check([&](minim_error* error) {
            return minim_engine_load_prefixes(handle_.get(), path.c_str(), minim::get(cancel), &n_pages,
                                              error);
        });
        return n_pages;
    }

    // Writes the longest cached prefix of `tokens` to a file of its own. Returns its length.
    uint64_t save_prefix(Ids tokens, const std::string& path, const Cancel* cancel = nullptr) {
        uint64_t n_tokens = 0;
        detail::check([&](minim_error* error) {
            return minim_engine_save_prefix(handle_.get(), tokens.data(), tokens.size(), path.c_str(),
                                            minim::get(cancel), &n_tokens, error);
        });
        return n_tokens;
    }

    // Reads a file of save_prefix(). Returns the tokens that are cached then.
    Tokens load_prefix(const std::string& path, const Cancel* cancel = nullptr) {
        minim_tokens* tokens = nullptr;
        detail::check([&](minim_error* error) {
            return minim_engine_load_prefix(handle_.get(), path.c_str(), minim::get(cancel), &tokens, error);
        });
        return Tokens(tokens);
    }

    // Drops what only these tokens have in the prefix cache. Returns the number of tokens dropped.
    uint64_t erase_prefix(Ids tokens) {
        uint64_t n_tokens = 0;
        detail::check([&](minim_error* error) {
            return minim_engine_erase_prefix(handle_.get(), tokens.data(), tokens.size(), &n_tokens, error);
        });
        return n_tokens;
    }

    minim_engine* get() const noexcept { return handle_.get(); }

  private:
    static Request::Notify notify_of(const RequestOptions& options) {
        return options.notify ? std::make_shared<std::function<void()>>(options.notify) : nullptr;
    }

    static minim_request_params c_params(const RequestOptions& options, const Request::Notify& notify) {
        minim_request_params params = MINIM_REQUEST_PARAMS_INIT;
        params.priority = options.priority;
        params.timeout_ms = options.timeout_ms;
        if (notify) {
            params.notify = [](void* call) { (*static_cast<std::function<void()>*>(call))(); };
            params.notify_user_data = notify.get();
        } else if (options.notify_fd >= 0) {
            params.notify = minim_notify_fd;
            // NOLINTNEXTLINE(performance-no-int-to-ptr): minim_notify_fd takes the descriptor itself
            params.notify_user_data = reinterpret_cast<void*>(static_cast<intptr_t>(options.notify_fd));
        }
        return params;
    }

    using HandleType = detail::Handle<minim_engine, minim_engine_free>;
    std::shared_ptr<Log> log_;
    HandleType handle_;
};

struct ImportanceOptions {
    std::string dataset;          // name of the text, which files keep
    int32_t chunk_size = 0;       // tokens of a chunk; 0: 512
    bool process_output = false;  // also of the output head
    uint64_t text_hash = 0;       // stands for the text; 0: none
};

// Importance data: collected from what attached sessions evaluate, read from files, or both.
class Importance {
  public:
    explicit Importance(const Model& model, const ImportanceOptions& options = {}) {
        minim_importance_params params = MINIM_IMPORTANCE_PARAMS_INIT;
        params.dataset = options.dataset.c_str();
        params.chunk_size = options.chunk_size;
        params.process_output = options.process_output ? 1 : 0;
        params.text_hash = options.text_hash;
        handle_ = detail::create<HandleType>([&](minim_importance** out, minim_error* error) {
            return minim_importance_create(model.get(), &params, out, error);
        });
    }

    // chunk_size: of an older file, which has no counts; 0: not known.
    static Importance load(const std::string& path, int32_t chunk_size = 0) {
        return Importance(detail::create<HandleType>([&](minim_importance** out, minim_error* error) {
            return minim_importance_load(path.c_str(), chunk_size, out, error);
        }));
    }

    // Collects from all that the session evaluates from now on.
    void attach(Session& session) const {
        detail::check(
            [&](minim_error* error) { return minim_importance_attach(handle_.get(), session.get(), error); });
    }
    static void detach(Session& session) {
        detail::check(
            [&](minim_error* error) { return minim_importance_attach(nullptr, session.get(), error); });
    }

    void merge(const Importance& other) {
        detail::check([&](minim_error* error) {
            return minim_importance_merge(handle_.get(), other.handle_.get(), error);
        });
    }

    // format: MINIM_IMPORTANCE_*.
    void save(const std::string& path, int32_t format = MINIM_IMPORTANCE_AUTO) const {
        detail::check([&](minim_error* error) {
            return minim_importance_save(handle_.get(), path.c_str(), format, error);
        });
    }

    // Returns the data in short, as a JSON object.
    Text describe() const {
        minim_text* text = nullptr;
        detail::check(
            [&](minim_error* error) { return minim_importance_describe(handle_.get(), &text, error); });
        return Text(text);
    }

    minim_importance* get() const noexcept { return handle_.get(); }

  private:
    using HandleType = detail::Handle<minim_importance, minim_importance_free>;
    explicit Importance(HandleType handle) noexcept : handle_(std::move(handle)) {}

    HandleType handle_;
};

// The options of Sampling::set. Their texts are static.
inline std::vector<minim_option_info> sampling_options() {
    std::vector<minim_option_info> all(minim_sampling_option_count());
    for (size_t i = 0; i < all.size(); ++i) {
        all[i] = MINIM_OPTION_INFO_INIT;
        detail::check([&](minim_error* error) { return minim_sampling_option(i, &all[i], error); });
    }
    return all;
}

// The weight formats. Their names are static.
inline std::vector<minim_format_info> formats() {
    std::vector<minim_format_info> all(minim_format_count());
    for (size_t i = 0; i < all.size(); ++i) {
        all[i] = MINIM_FORMAT_INFO_INIT;
        detail::check([&](minim_error* error) { return minim_format_get_info(i, &all[i], error); });
    }
    return all;
}

// Decodes one row of `count` elements of a weight format, such as "Q4_K".
inline std::vector<float> decode_format(const std::string& name, const void* row, size_t row_bytes,
                                        size_t count) {
    std::vector<float> out(count);
    detail::check([&](minim_error* error) {
        return minim_format_decode(name.c_str(), row, row_bytes, count, out.data(), error);
    });
    return out;
}

// Encodes rows of `columns` weights, one behind the other in x, in a weight format. `importance` has a number for each column, or none.
inline std::vector<std::byte> encode_format(const std::string& name, const std::vector<float>& x,
                                            size_t columns, const std::vector<float>& importance = {}) {
    const bool is_valid =
        columns > 0 && x.size() % columns == 0 && (importance.empty() || importance.size() == columns);
    if (!is_valid)
        throw std::invalid_argument(
            "x is not whole rows, or importance does not have a number for each column");
    std::vector<std::byte> out;
    for (const minim_format_info& format : formats()) {
        if (name != format.name) continue;
        const size_t blocks = columns / static_cast<size_t>(format.block_elems);
        out.resize(x.size() / columns *
                   (static_cast<size_t>(format.row_header_bytes) +
                    blocks * static_cast<size_t>(format.block_bytes)));
    }
    detail::check([&](minim_error* error) {
        return minim_format_encode(name.c_str(), x.data(), x.size() / columns, columns,
                                   importance.empty() ? nullptr : importance.data(), out.data(), out.size(),
                                   error);
    });
    return out;
}

}  // namespace minim
