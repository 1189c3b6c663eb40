// SPDX-License-Identifier: Apache-2.0
#include "serving.h"

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "memory_text.h"
#include "options/open_model.h"
#include "request_log.h"

namespace server {

namespace {

minim::Runtime open_runtime(const Options& options) {
    minim::RuntimeOptions runtime = program::runtime_options(options);
    runtime.log = [](int32_t, const char* line) { write_note(line); };
    return minim::Runtime(runtime);
}

// Leaves room for the KV cache that open_engine() asks for. Without a usable device the server runs on the CPU, and says so.
minim::Model open_model(const minim::Runtime& runtime, Options options, const std::string& path,
                        const minim::Progress& progress) {
    const bool is_given = options.kv_tokens > 0;
    program::Room room;
    room.n_context = is_given ? static_cast<int64_t>(options.kv_tokens) : options.n_context;
    room.n_requests = is_given ? 1 : slots_of(options);
    options.n_ubatch = options.n_batch;
    options.allow_cpu = options.allow_cpu || options.devices.empty() || options.devices == "auto";
    std::vector<std::string> notes;
    minim::ModelOptions model = program::model_options(runtime, options, path, room, notes);
    model.progress = progress;
    for (const std::string& note : notes) write_note(note);
    minim::Model opened =
        program::naming_options(options, [&] { return minim::Model(runtime, path, model); });
    if (opened.info().process == 0) return opened;
    // A launcher passes signals on to all processes. The one that leads ends the others once its requests have ended.
    for (const int signal : {SIGTERM, SIGINT}) std::signal(signal, SIG_IGN);
    opened.follow();
    throw FollowedToTheEnd();
}

// Returns a metadata text of the checkpoint, or "" if it has none.
std::string metadata(const minim::Model& model, const std::string& key) {
    try {
        return model.checkpoint().metadata(key).str();
    } catch (const minim::Exception& error) {
        if (error.status() != MINIM_E_NOT_FOUND) throw;
        return {};
    }
}

// Fills in missing values with the checkpoint's recommendations.
SamplingDefaults complete(const SamplingDefaults& given, const minim_recommended_sampling& recommended) {
    constexpr int64_t k_usual_window = 64;
    SamplingDefaults defaults = given;
    defaults.temperature = given.temperature.value_or(recommended.temperature);
    defaults.top_p = given.top_p.value_or(recommended.top_p);
    defaults.top_k = given.top_k.value_or(recommended.top_k);
    defaults.min_p = given.min_p.value_or(recommended.min_p);
    defaults.repetition_penalty = given.repetition_penalty.value_or(recommended.repetition_penalty);
    defaults.penalty_last_n =
        given.repeat_last_n.value_or(given.repetition_penalty ? k_usual_window : recommended.penalty_last_n);
    return defaults;
}

std::vector<std::string> names_of(const minim::Model& model, const std::vector<std::string>& given) {
    if (!given.empty()) return given;
    const std::string name = model.info().name;
    return {name.empty() ? "minim" : name};
}

// Returns the bytes of host memory for prompt states. On the CPU the KV cache itself is in host memory, and --kv-tokens makes it larger.
uint64_t host_cache_of(const minim::Model& model, const Options& options) {
    constexpr int64_t k_usual_mib = 8192;
    const auto is_device = [](const minim_device_memory& memory) {
        const std::string_view name = memory.name;
        return memory.n_layer > 0 && name != "cpu" && name != "reference";
    };
    const bool is_on_device = std::ranges::any_of(model.memory(), is_device) && !options.forgets_prefixes;
    const int64_t mib = options.cache_ram.value_or(is_on_device ? k_usual_mib : 0);
    return mib < 0 ? UINT64_MAX : static_cast<uint64_t>(mib) << 20U;
}

// Sizes that the options do not give become what fits, which the library chooses (minim_engine_create).
minim::Engine open_engine(const minim::Model& model, const Options& options) {
    minim::EngineOptions engine;
    engine.kv_tokens = options.kv_tokens;
    engine.max_context = static_cast<uint64_t>(options.n_context);
    engine.k_format = options.k_format;
    engine.v_format = options.v_format;
    engine.forget_prefixes = options.forgets_prefixes;
    engine.n_requests = static_cast<int32_t>(slots_of(options));
    engine.fewer_requests = options.n_parallel == 0;
    engine.n_batch = options.n_batch != 0 ? std::max(options.n_batch, engine.n_requests) : 0;
    engine.warm_up = options.warmup;
    engine.host_cache_bytes = host_cache_of(model, options);
    minim::Engine opened(model, engine);
    const minim_engine_state state = opened.state();
    if (state.max_context < engine.max_context)
        throw std::runtime_error(
            fmt::format("a context of {} tokens does not fit a KV cache of {} tokens (--kv-tokens)",
                        engine.max_context, engine.kv_tokens));
    return opened;
}

// Returns the length of a token's text; 0 for rows of the embedding that stand for no token: padding.
size_t token_length(const minim::Model& model, int32_t id) {
    try {
        return model.token_text(id).view().size();
    } catch (const minim::Exception& error) {
        if (error.status() != MINIM_E_INVALID) throw;
        return 0;
    }
}

// Returns the length of the longest token's text, at least 1.
size_t longest_token_of(const minim::Model& model, int64_t n_vocab) {
    size_t longest = 1;
    for (int64_t id = 0; id < n_vocab; ++id)
        longest = std::max(longest, token_length(model, static_cast<int32_t>(id)));
    return longest;
}

}  // namespace

Serving::Serving(const Options& o) : options(o), runtime(open_runtime(options)) {
    std::error_code error;
    const std::string& folder = options.slot_save_path;
    if (!folder.empty() && !std::filesystem::is_directory(folder, error))
        throw UsageError(fmt::format("--slot-save-path: '{}' is not a folder", folder));
}

ServedModel::ServedModel(Serving& shared, EventLoop& loop, std::string model_path,
                         const std::vector<std::string>& given_names, const minim::Progress& progress)
    : options(shared.options),
      path(std::move(model_path)),
      model(open_model(shared.runtime, options, path, progress)),
      info(model.info()),
      names(names_of(model, given_names)),
      name(names.front()),
      markup(model.chat_markup()),
      chat_template(options.chat_template.empty() ? metadata(model, "tokenizer.chat_template")
                                                  : options.chat_template),
      recommended(model.checkpoint().recommended_sampling()),
      sampling(complete(options.sampling, recommended)),
      longest_token(longest_token_of(model, info.n_vocab)),
      engine(open_engine(model, options)),
      n_context(static_cast<int64_t>(engine.state().max_context)),
      n_slots(static_cast<int64_t>(engine.state().n_requests)),
      turns(model),
      reasoning(shared.reasoning),
      constraints(model),
      jobs(loop, engine, static_cast<size_t>(n_slots), static_cast<size_t>(options.n_queue)) {}

int64_t slots_of(const Options& options) {
    constexpr int64_t k_usual_slots = 16;
    return options.n_parallel > 0 ? options.n_parallel : k_usual_slots;
}

void log_sizes(const ServedModel& served) {
    for (const minim_device_memory& device : served.model.memory())
        write_note("memory: " + program::memory_text(device));
    write_note(fmt::format("sizes: {}", served.engine.state().sizes));
}

void load_prefixes(ServedModel& served) {
    const std::string& file = served.options.saved_prefixes;
    if (file.empty()) return;
    try {
        const uint64_t n_pages = served.engine.load_prefixes(file);
        write_note(fmt::format("--save-prefixes: {} pages of prefixes were read from {}", n_pages, file));
    } catch (const minim::Exception& error) {
        write_note(
            fmt::format("--save-prefixes: the server starts without cached prefixes: {}", error.what()));
    }
}

void save_prefixes(ServedModel& served) {
    const std::string& file = served.options.saved_prefixes;
    if (file.empty()) return;
    for (const int signal : {SIGTERM, SIGINT}) std::signal(signal, SIG_DFL);  // a further one ends the server
    write_note(fmt::format("writing the prefix cache to {}", file));
    served.engine.save_prefixes(file);
}

void save_expert_profile(const ServedModel& served) {
    const std::string& file = served.options.expert_profile;
    const auto has_places = [](const minim_expert_cache& cache) { return cache.n_places > 0; };
    if (!file.empty() && std::ranges::any_of(served.model.expert_caches(), has_places))
        served.model.save_expert_profile(file);
}

}  // namespace server
