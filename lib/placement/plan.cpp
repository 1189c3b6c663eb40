// SPDX-License-Identifier: Apache-2.0
// One long file: each decision (layers, experts, caches, context) depends on the bytes that the earlier ones have left.
#include "placement/plan.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

#include "backend/experts.h"
#include "backend/kv_view.h"
#include "base/error.h"
#include "base/format_text.h"
#include "kv/engine_sizes.h"
#include "model/roles.h"
#include "placement/predict.h"
#include "placement/split_layers.h"
#include "runtime/stream_rule.h"
#include "weights/device_target.h"

namespace minim::placement {
namespace {

using kv::EngineSizes;
using kv::EngineWish;
using kv::Fit;
using kv::FitOf;
using model::Role;

// Devices whose measured bandwidths differ by less than this part count as equally fast: measuring is no more precise.
constexpr double k_even_part = 0.1;

// The reserve that stays free in each memory, for uncounted allocations.
constexpr uint64_t k_reserve_bytes = uint64_t{512} << 20;
constexpr double k_reserve_part = 0.02;
// The memory that a driver takes for a context and the code of kernels.
constexpr uint64_t k_driver_bytes = uint64_t{500} << 20;
constexpr uint64_t k_staging_bytes = uint64_t{16} << 20;

// Limits for the rows of a prompt step if the plan chooses their number. More rows share each copy of an expert but need more
// work space. They must leave decoding at least k_min_decode_part of its speed, and make prompts k_min_prompt_gain times as
// fast.
constexpr int64_t k_max_ubatch = 8192;
constexpr double k_min_decode_part = 0.99;
constexpr double k_min_prompt_gain = 1.05;

constexpr int64_t k_context_step = 256;  // granularity of the context that would fit, in messages

// Returns whether a device has a cache: some experts of a layer, all of which the host has too.
bool has_cache(const Plan& plan) {
    return std::ranges::any_of(plan.cached_part, [](double part) { return part > 0.0; });
}

uint64_t reserve_of(uint64_t memory) {
    return std::min(k_reserve_bytes, static_cast<uint64_t>(k_reserve_part * static_cast<double>(memory)));
}

// Bytes of the model by layer.
struct Sizes {
    std::vector<uint64_t> dense, experts;  // by layer
    std::vector<int64_t> n_experts;
    uint64_t embedding = 0;
    uint64_t head = 0;
    // Seconds of the host for one row.
    std::vector<double> dense_on_host, experts_on_host;  // by layer; all experts of the layer
    double head_on_host = 0.0;
    // Cycles of a device's multiprocessor (predict.h).
    std::vector<double> dense_cycles, expert_cycles;  // by layer
    double head_cycles = 0.0;
    uint64_t layer_kv = 0;         // KV cache of one layer, for all sequences
    uint64_t layer_kv_of_one = 0;  // for one sequence
    int64_t n_kv_tokens = 0;       // of all sequences, in whole pages
};

// Returns the sizes without those of the KV cache.
Sizes weight_sizes(const PlanRequest& request) {
    const int64_t n = request.config.n_layer;
    Sizes sizes;
    sizes.dense.resize(n);
    sizes.experts.resize(n);
    sizes.n_experts.resize(n);
    sizes.dense_on_host.resize(n);
    sizes.experts_on_host.resize(n);
    sizes.dense_cycles.resize(n);
    sizes.expert_cycles.resize(n);
    for (const weights::WeightSpec& weight : request.weights) {
        const auto role = static_cast<Role>(weight.role);
        const int64_t layer = std::max(weight.layer, 0);
        if (role == Role::experts_norm) continue;  // a few kilobytes for offloaded experts
        const double seconds = static_cast<double>(weight.bytes()) / host_rate(request.host, weight.format);
        const double cycles = decode_cycles(weight.format, weight.rows, weight.cols);
        const weights::WeightSpec* const one = &weight;
        const uint64_t bytes = weights::device_bytes({&one, 1});
        if (role == Role::embedding) {
            sizes.embedding += bytes;
        } else if (weight.layer < 0) {
            sizes.head += bytes;
            sizes.head_on_host += seconds;
            sizes.head_cycles += cycles;
        } else if (weight.is_expert()) {
            sizes.experts[layer] += bytes;
            sizes.experts_on_host[layer] += seconds;
            sizes.expert_cycles[layer] += cycles;
            if (role == Role::gate) ++sizes.n_experts[layer];
        } else {
            sizes.dense[layer] += bytes;
            sizes.dense_on_host[layer] += seconds;
            sizes.dense_cycles[layer] += cycles;
        }
    }
    return sizes;
}

// Returns the sizes with those of the KV cache of a request.
Sizes with_kv(Sizes sizes, const PlanRequest& request) {
    const model::Config& config = request.config;
    const backend::KvLayout layout = {1, config.n_head_kv, config.head_dim, request.k_format,
                                      request.v_format};
    const auto pages_of = [](int64_t n_tokens) {
        return (n_tokens + backend::k_kv_page_tokens - 1) / backend::k_kv_page_tokens;
    };
    const int64_t n_pages_of_one = pages_of(request.n_context);
    const int64_t n_pages =
        request.n_kv_tokens > 0 ? pages_of(request.n_kv_tokens) : n_pages_of_one * request.n_sequences;
    sizes.layer_kv = static_cast<uint64_t>(n_pages * layout.page_bytes());
    sizes.layer_kv_of_one = static_cast<uint64_t>(n_pages_of_one * layout.page_bytes());
    sizes.n_kv_tokens = n_pages * backend::k_kv_page_tokens;
    return sizes;
}

// Returns the approximate bytes of the buffers of a step of n_rows rows: activations of rows and of slots, scores,
// quantised copies, page tables, and rows of logits.
uint64_t step_bytes(const model::Config& config, int64_t n_rows, int64_t n_context, bool is_device) {
    const auto floats = [](int64_t count) { return static_cast<uint64_t>(count) * sizeof(float); };
    const int64_t slots = n_rows * config.n_expert_used;
    const int64_t q = config.n_head * config.head_dim;
    const int64_t kv = config.n_head_kv * config.head_dim;
    const int64_t longest = std::max(config.hidden, q);
    uint64_t bytes = floats(n_rows * (2 * config.hidden + 2 * q + 2 * kv + 4 * config.n_expert_used));
    bytes += floats(slots * (config.expert_ff + std::max(config.hidden, config.expert_ff)));
    bytes += floats(n_rows * (config.n_expert + longest)) + floats(slots * config.expert_ff / 2);
    bytes += static_cast<uint64_t>(n_rows * (n_context / backend::k_kv_page_tokens + 1)) * sizeof(uint64_t);
    bytes += floats(std::min<int64_t>(n_rows, 64) * config.n_vocab);
    if (is_device) bytes += floats(n_rows * q) + k_staging_bytes + k_driver_bytes;
    return bytes;
}

bool has_all_rates(const PlanRequest& request) {
    return request.host.bytes_per_second > 0.0 &&
           std::ranges::all_of(request.devices,
                               [](const DeviceFacts& device) { return device.bytes_per_second > 0.0; });
}

// The number of layers of each device. The remaining layers come before them and are on the host.
using Counts = std::vector<int64_t>;

class Planner {
  public:
    explicit Planner(const PlanRequest& request) : Planner(request, weight_sizes(request)) {}

    // `weights`: the sizes of the request's weights, which other plans may share.
    Planner(const PlanRequest& request, const Sizes& weights)
        : request_(request), sizes_(with_kv(weights, request)), n_layer_(request.config.n_layer) {
        for (size_t d = 0; d < request.devices.size(); ++d)
            device_work_.push_back(request.taken_bytes
                                       ? request.taken_bytes(d, n_rows(), request.n_context)
                                       : step_bytes(request.config, n_rows(), request.n_context, true));
        host_work_ = step_bytes(request.config, n_rows(), request.n_context, false);
        read_rules();
    }

    Plan place_all() const { return request_.shares.empty() ? search() : filled(counts_of_shares()); }

    // Returns how the KV cache of a plan fits beside its weights.
    Fit fit(const Plan& plan) const {
        const uint64_t memory = request_.host.memory_bytes;
        const PlannedPlace& host = plan.host;
        if (overflow(plan) > 0) return Fit::no;
        if (host.kv_bytes + host.work_bytes > memory - reserve_of(memory)) return Fit::no;
        if (host.kv_bytes > 0 && host_overflow(plan) > 0) return Fit::yes;  // weights are mapped
        const bool gives_up_layers =
            request_.n_device_layers < 0 && !plan.devices.empty() && host.n_layers > 0;
        bool is_whole = !gives_up_layers && !has_cache(plan);
        for (size_t l = 0; l < said_.size(); ++l)
            if (said_[l] == k_free && plan.expert_device[l] != plan.layer_device[l]) is_whole = false;
        if (is_whole) return Fit::nothing;
        uint64_t kv = 0;
        uint64_t experts = 0;
        for (const PlannedPlace& device : plan.devices) {
            kv += device.kv_bytes;
            experts += device.expert_bytes;
        }
        return experts >= kv && !gives_up_layers ? Fit::beside : Fit::yes;
    }

    // Adds the sentences to a plan. Throws unsupported for rules that the plan cannot keep.
    void describe(Plan& plan) const {
        check_rules(plan);
        for (size_t d = 0; d < plan.devices.size(); ++d) describe_device(plan, d);
        if (plan.host.n_layers > 0 && !plan.devices.empty())
            plan.choices.push_back(
                format_text("{} layers stay with the CPU: the devices have no room for their attention "
                            "weights and KV cache",
                            plan.host.n_layers));
        if (plan.host.expert_bytes > 0)
            plan.choices.push_back(format_text("{} of {} experts ({}) are in host memory{}",
                                               plan.host.n_experts, n_experts(),
                                               size_text(plan.host.expert_bytes),
                                               request_.overrides.empty() ? "" : ", as far as -ot says so"));
        if (!plan.fits) describe_refusal(plan);
    }

  private:
    int32_t device_of(const std::string& name, const std::string& rule) const {
        const std::string wanted = device_name(name);
        if (wanted == "cpu") return k_on_host;
        const auto found = std::ranges::find(request_.devices, wanted, &DeviceFacts::name);
        if (found == request_.devices.end()) {
            std::string known = "cpu";
            for (const DeviceFacts& device : request_.devices) known += ", " + device.name;
            fail(Status::invalid, "override {}: device '{}' is not in the plan (there are: {})", rule, name,
                 known);
        }
        return static_cast<int32_t>(found - request_.devices.begin());
    }

    void read_rules() {
        said_ = request_.expert_devices;
        said_.resize(n_layer_, k_free);
        if (!request_.overrides.empty())
            wanted_ = wanted_places(parse_overrides(request_.overrides), n_layer_);
        for (const WantedPlace& place : wanted_)
            if (place.is_of_experts && !place.device.empty())
                said_[place.layer] = device_of(place.device, place.rule);
        is_named_.resize(said_.size());
        for (size_t l = 0; l < said_.size(); ++l) is_named_[l] = said_[l] != k_free;
        for (int64_t layer = 0; layer < n_layer_; ++layer) {
            int32_t& said = said_[layer];
            if (said == k_free && is_host_layer(request_.n_host_experts, layer, n_layer_)) said = k_on_host;
        }
    }

    // Refuses rules that would split the experts of a layer, or move another tensor from its layer.
    void check_rules(const Plan& plan) const {
        for (const WantedPlace& place : wanted_) {
            const int64_t layer = std::max<int64_t>(place.layer, 0);
            const int32_t own = place.layer < 0 ? k_free : plan.layer_device[layer];
            const int32_t wanted = place.device.empty() ? own : device_of(place.device, place.rule);
            const bool is_free = place.is_of_experts && !is_named_[layer];
            if (place.is_of_experts && !is_free && wanted != plan.expert_device[layer])
                fail(Status::unsupported,
                     "experts of layer {} would be in two places ({}); a layer's stay together", place.layer,
                     place.tensor);
            if (!place.is_of_experts && place.layer >= 0 && wanted != own)
                fail(Status::unsupported,
                     "override {}: {} stays with its layer; only experts can be offloaded", place.rule,
                     place.tensor);
        }
    }

    uint64_t reserve_on(size_t device) const {
        return request_.taken_bytes ? 0 : reserve_of(request_.devices[device].memory_bytes);
    }

    uint64_t capacity(size_t device) const {
        const uint64_t memory = request_.devices[device].memory_bytes;
        const uint64_t taken = device_work_[device] + reserve_on(device);
        return memory > taken ? memory - taken : 0;
    }

    Counts counts_of_shares() const {
        const double sum = std::accumulate(request_.shares.begin(), request_.shares.end(), 0.0);
        const bool are_counts =
            sum == static_cast<double>(n_layer_) &&
            std::ranges::all_of(request_.shares, [](double s) { return s == std::floor(s); });
        const bool is_part = request_.n_device_layers >= 0 && request_.n_device_layers < n_layer_;
        if (!are_counts || is_part)
            return split_layers(is_part ? request_.n_device_layers : n_layer_, request_.shares);
        Counts counts;
        for (const double share : request_.shares) counts.push_back(static_cast<int64_t>(share));
        return counts;
    }

    // Starts with layers in proportion to the free memory.
    Counts proportional(int64_t n_on_devices) const {
        std::vector<double> room;
        for (size_t d = 0; d < request_.devices.size(); ++d)
            room.push_back(static_cast<double>(std::max<uint64_t>(capacity(d), 1)));
        return split_layers(n_on_devices, room);
    }

    // Places the experts as the rules say, the others as request_.free_experts says. If the host has no room for all of a device
    // that has a cache, the experts of the last layers are only on the device.
    Plan filled(const Counts& counts) const {
        const bool may_cache = request_.free_experts == FreeExperts::cached;
        Plan plan = filled(counts, may_cache);
        return !may_cache || host_overflow(plan) == 0 ? plan : filled(counts, false);
    }

    Plan filled(const Counts& counts, bool may_cache) const {
        Plan plan;
        plan.layer_device.assign(n_layer_, k_on_host);
        plan.expert_device.assign(n_layer_, k_on_host);
        plan.cached_part.assign(n_layer_, 0.0);
        int64_t layer = n_layer_ - std::accumulate(counts.begin(), counts.end(), int64_t{0});
        for (size_t d = 0; d < counts.size(); ++d)
            for (int64_t i = 0; i < counts[d]; ++i) plan.layer_device[layer++] = static_cast<int32_t>(d);
        for (const DeviceFacts& device : request_.devices) plan.devices.push_back({.name = device.name});
        plan.host.name = "cpu";
        plan.host.work_bytes = host_work_;
        for (size_t d = 0; d < plan.devices.size(); ++d) plan.devices[d].work_bytes = device_work_[d];
        add_dense(plan);
        for (size_t l = 0; l < said_.size(); ++l) {
            if (said_[l] == k_on_other_device) plan.expert_device[l] = k_on_other_device;
            if (said_[l] >= k_on_host) add_experts(plan, l, said_[l]);
        }
        for (int32_t d = k_on_host; d < std::ssize(plan.devices); ++d) add_free_experts(plan, d, may_cache);
        finish(plan);
        return plan;
    }

    PlannedPlace& place(Plan& plan, int32_t device) const {
        return device == k_on_host ? plan.host : plan.devices[device];
    }

    void add_dense(Plan& plan) const {
        for (size_t l = 0; l < plan.layer_device.size(); ++l) {
            PlannedPlace& there = place(plan, plan.layer_device[l]);
            there.dense_bytes += sizes_.dense[l];
            there.kv_bytes += sizes_.layer_kv;
            ++there.n_layers;
        }
        place(plan, plan.layer_device.front()).dense_bytes += sizes_.embedding;
        place(plan, plan.layer_device.back()).dense_bytes += sizes_.head;
    }

    void add_experts(Plan& plan, size_t layer, int32_t device) const {
        plan.expert_device[layer] = device;
        PlannedPlace& there = place(plan, device);
        there.expert_bytes += sizes_.experts[layer];
        there.n_experts += sizes_.n_experts[layer];
    }

    // Places the experts that no rule places, of the layers of a device.
    void add_free_experts(Plan& plan, int32_t device, bool may_cache) const {
        std::vector<size_t> layers;
        std::vector<size_t> cached;  // whose experts are with the host, by a rule
        uint64_t bytes = 0;
        for (size_t l = said_.size(); l-- > 0;) {
            if (plan.layer_device[l] != device) continue;
            if (said_[l] == k_on_host && request_.caches_host_experts) cached.push_back(l);
            if (said_[l] != k_free) continue;
            layers.push_back(l);
            bytes += sizes_.experts[l];
        }
        const uint64_t room = device == k_on_host ? 0 : room_on(plan, device);
        may_cache = may_cache && device != k_on_host;
        if (may_cache && bytes > room) {
            for (const size_t l : layers) add_experts(plan, l, k_on_host);
            cached.insert(cached.end(), layers.begin(), layers.end());
        } else {
            for (const size_t l : layers) {
                const bool stays = request_.free_experts == FreeExperts::stay ||
                                   (device != k_on_host && sizes_.experts[l] <= room_on(plan, device));
                add_experts(plan, l, stays ? device : k_on_host);
            }
        }
        if (may_cache) add_cache(plan, device, cached, room_on(plan, device));
    }

    uint64_t room_on(const Plan& plan, int32_t device) const {
        const int64_t d = device;
        const uint64_t all = used(plan.devices[d]);
        return capacity(d) > all ? capacity(d) - all : 0;
    }

    // Gives a device a cache in `room`, for the same part of the experts of every layer. Layers whose experts have one size share
    // their room.
    void add_cache(Plan& plan, int32_t device, const std::vector<size_t>& layers, uint64_t room) const {
        std::map<uint64_t, std::vector<size_t>> classes;  // by bytes of an expert
        uint64_t all = 0;
        double all_on_host = 0.0;  // seconds
        double all_cycles = 0.0;
        uint64_t tables = 0;
        for (const size_t l : layers) {
            if (sizes_.n_experts[l] == 0) continue;
            const auto n = static_cast<uint64_t>(sizes_.n_experts[l]);
            classes[sizes_.experts[l] / n].push_back(l);
            all += sizes_.experts[l];
            all_on_host += sizes_.experts_on_host[l];
            all_cycles += sizes_.expert_cycles[l];
            tables += n * sizeof(backend::ExpertPlace);
        }
        const int64_t d = device;
        if (request_.most_cache_bytes != UINT64_MAX) {
            const double part = static_cast<double>(layers.size()) / static_cast<double>(n_layer_);
            room =
                std::min(room, static_cast<uint64_t>(static_cast<double>(request_.most_cache_bytes) * part));
        }
        const uint64_t outputs = request_.taken_bytes ? 0 : output_bytes();
        if (all == 0 || room <= tables + outputs) return;
        room -= outputs;
        const uint64_t whole_room = room > tables ? room - tables : 0;
        const uint64_t staging = staging_bytes(request_.devices[d], classes.rbegin()->first, all, room);
        room -= staging;
        plan.devices[d].work_bytes += outputs + staging;
        if (room <= tables) return;
        const double of_room = static_cast<double>(room - tables) / static_cast<double>(all);
        const double balanced =
            rates_are_known_
                ? balanced_part(device_rate(request_.devices[d], static_cast<double>(all), all_cycles),
                                static_cast<double>(all) / all_on_host)
                : 1.0;
        const double part = std::min(of_room, balanced);
        PlannedPlace& there = plan.devices[d];
        const uint64_t before = there.expert_bytes;
        for (const auto& [bytes, of] : classes) {
            int64_t n_all = 0;
            for (const size_t l : of) n_all += sizes_.n_experts[l];
            const auto n = static_cast<int64_t>(part * static_cast<double>(n_all));
            there.n_experts += n;
            there.expert_bytes += static_cast<uint64_t>(n) * bytes;
            for (const size_t l : of)
                plan.cached_part[l] = static_cast<double>(n) / static_cast<double>(n_all);
        }
        // A cache that is not limited by its room gets what it needs.
        there.cache_bytes = part < of_room ? staging + there.expert_bytes - before : whole_room;
    }

    int64_t n_rows() const { return std::min(request_.n_ubatch, request_.n_context); }

    // Returns the bytes of the outputs of a step's slots. The device adds them up once the host has computed its slots.
    uint64_t output_bytes() const {
        return static_cast<uint64_t>(n_rows() * request_.config.n_expert_used * request_.config.hidden) *
               sizeof(float);
    }

    // Returns the bytes, out of the room for a cache, of the areas for experts that steps copy (runtime/expert_stream.h).
    // Returns 0 if steps copy none.
    uint64_t staging_bytes(const DeviceFacts& device, uint64_t expert_bytes, uint64_t all,
                           uint64_t room) const {
        if (room >= all) return 0;
        const runtime::StreamRule rule =
            stream_rule(device, request_.host, request_.config, static_cast<double>(expert_bytes), n_rows());
        return runtime::stream_space(rule, expert_bytes, request_.config.n_expert, room).device_bytes();
    }

    static uint64_t used(const PlannedPlace& place) {
        return place.dense_bytes + place.expert_bytes + place.kv_bytes;
    }

    // Returns the bytes by which the plan exceeds the memories of the devices.
    uint64_t overflow(const Plan& plan) const {
        uint64_t over = 0;
        for (size_t d = 0; d < plan.devices.size(); ++d)
            if (used(plan.devices[d]) > capacity(d)) over += used(plan.devices[d]) - capacity(d);
        return over;
    }
    uint64_t host_overflow(const Plan& plan) const {
        const uint64_t room = request_.host.memory_bytes - reserve_of(request_.host.memory_bytes);
        const uint64_t all = used(plan.host) + plan.host.work_bytes;
        return all > room ? all - room : 0;
    }

    void finish(Plan& plan) const {
        const auto left = [](uint64_t memory, const PlannedPlace& place, uint64_t reserve) {
            const uint64_t taken = used(place) + place.work_bytes + reserve;
            return memory > taken ? memory - taken : 0;
        };
        for (size_t d = 0; d < plan.devices.size(); ++d)
            plan.devices[d].free_bytes =
                left(request_.devices[d].memory_bytes, plan.devices[d], reserve_on(d));
        plan.host.free_bytes =
            left(request_.host.memory_bytes, plan.host, reserve_of(request_.host.memory_bytes));
        plan.fits = overflow(plan) == 0 && host_overflow(plan) == 0;
        plan.n_ubatch = request_.n_ubatch;
        plan.n_context = request_.n_context;
        plan.n_kv_tokens = sizes_.n_kv_tokens;
        plan.n_sequences = request_.n_sequences;
        const int64_t n_used = request_.config.n_expert_used;
        plan.token_dense_bytes = sizes_.head;
        for (size_t l = 0; l < sizes_.dense.size(); ++l) {
            plan.token_dense_bytes += sizes_.dense[l];
            if (sizes_.n_experts[l] > 0)
                plan.token_expert_bytes += sizes_.experts[l] / static_cast<uint64_t>(sizes_.n_experts[l]) *
                                           static_cast<uint64_t>(n_used);
        }
        const uint64_t kv_of_one = sizes_.layer_kv_of_one;
        plan.token_kv_bytes = kv_of_one * static_cast<uint64_t>(n_layer_);
        if (!rates_are_known_) return;
        std::vector<LayerReads> reads;
        for (size_t l = 0; l < sizes_.dense.size(); ++l)
            reads.push_back({static_cast<double>(sizes_.dense[l]), static_cast<double>(kv_of_one),
                             static_cast<double>(sizes_.experts[l]),
                             sizes_.n_experts[l] > 0
                                 ? static_cast<double>(n_used) / static_cast<double>(sizes_.n_experts[l])
                                 : 0.0,
                             sizes_.dense_on_host[l], sizes_.experts_on_host[l], sizes_.dense_cycles[l],
                             sizes_.expert_cycles[l]});
        predict({request_.config, request_.devices, request_.host, reads, static_cast<double>(sizes_.head),
                 sizes_.head_on_host, sizes_.head_cycles, request_.n_context, request_.n_ubatch},
                plan);
    }

    // The order of plans: those that fit, then those without caches, then by decode speed, then by even use of devices.
    auto rank(const Plan& plan) const {
        double imbalance = 0.0;
        for (size_t d = 0; d < plan.devices.size(); ++d) {
            // Least where each device's part is in proportion to its room.
            const auto bytes = static_cast<double>(used(plan.devices[d]));
            imbalance += bytes * (bytes / static_cast<double>(std::max<uint64_t>(capacity(d), 1)));
        }
        // Handing over costs a few microseconds, for which no device stays empty.
        const double seconds = plan.decode_seconds.total() - plan.decode_seconds.hand_over;
        // In picoseconds: rounding errors of sums must not move a layer.
        return std::tuple(overflow(plan), host_overflow(plan), has_cache(plan), std::llround(seconds * 1e9),
                          imbalance);
    }

    // Moves layers from one device to another as long as that improves the plan.
    Plan improved(Plan best, Counts counts) const {
        for (bool moved = true; moved;) {
            moved = false;
            for (const int64_t step : {int64_t{8}, int64_t{2}, int64_t{1}}) {
                for (size_t from = 0; from < counts.size(); ++from) {
                    for (size_t to = 0; to < counts.size(); ++to) {
                        if (from == to || counts[from] < step) continue;
                        Counts other = counts;
                        other[from] -= step;
                        other[to] += step;
                        Plan plan = filled(other);
                        if (rank(plan) >= rank(best)) continue;
                        best = std::move(plan);
                        counts = std::move(other);
                        moved = true;
                    }
                }
            }
        }
        return best;
    }

    // Puts all layers on devices if there is room for attention and KV cache, else as many as fit.
    Plan search() const {
        if (request_.devices.empty()) return filled({});
        const bool is_fixed = request_.n_device_layers >= 0;
        int64_t n_on_devices = is_fixed ? std::min(request_.n_device_layers, n_layer_) : n_layer_;
        while (true) {
            const Counts counts = proportional(n_on_devices);
            Plan plan = improved(filled(counts), counts);
            if (overflow(plan) == 0 || n_on_devices == 0 || is_fixed || !request_.overrides.empty())
                return plan;
            --n_on_devices;
        }
    }

    int64_t n_experts() const {
        return std::accumulate(sizes_.n_experts.begin(), sizes_.n_experts.end(), int64_t{0});
    }

    static std::string size_text(uint64_t bytes) {
        return format_text("{:.1f} GiB", static_cast<double>(bytes) / 1073741824.0);
    }

    // Returns the number of experts in a device's cache.
    int64_t cached_of(const Plan& plan, size_t d) const {
        int64_t n = plan.devices[d].n_experts;
        bool caches = false;
        for (size_t l = 0; l < plan.expert_device.size(); ++l) {
            if (plan.expert_device[l] == static_cast<int32_t>(d)) n -= sizes_.n_experts[l];
            caches = caches || (plan.layer_device[l] == static_cast<int32_t>(d) && plan.cached_part[l] > 0.0);
        }
        return caches ? n : 0;
    }

    void describe_device(Plan& plan, size_t d) const {
        const PlannedPlace& place = plan.devices[d];
        if (place.n_layers == 0 && place.n_experts == 0) {
            plan.choices.push_back(format_text("{}: nothing", place.name));
            return;
        }
        if (const int64_t n_cached = cached_of(plan, d); n_cached > 0) {
            plan.choices.push_back(
                format_text("{}: attention and KV cache of {} layers, a cache of {} experts, while the CPU "
                            "computes the others; "
                            "{} of {} used, {} free",
                            place.name, place.n_layers, n_cached, size_text(used(place) + place.work_bytes),
                            size_text(request_.devices[d].memory_bytes), size_text(place.free_bytes)));
            return;
        }
        int64_t with_experts = 0;
        for (size_t l = 0; l < plan.expert_device.size(); ++l)
            with_experts += plan.expert_device[l] == static_cast<int32_t>(d) ? 1 : 0;
        plan.choices.push_back(format_text(
            "{}: attention and KV cache of {} layers, experts of {} layers; {} of {} used, {} free",
            place.name, place.n_layers, with_experts, size_text(used(place) + place.work_bytes),
            size_text(request_.devices[d].memory_bytes), size_text(place.free_bytes)));
    }

    bool fits_with(int64_t n_context, Format k, Format v) const {
        PlanRequest other = request_;
        other.n_context = n_context;
        if (request_.n_kv_tokens > 0) other.n_kv_tokens = n_context;
        other.k_format = k;
        other.v_format = v;
        const Planner planner(other, sizes_);
        return planner.place_all().fits;
    }

    // Returns the largest context that fits; 0: none.
    int64_t largest_context(Format k, Format v) const {
        int64_t low = 0;
        int64_t high = request_.n_context / k_context_step;
        while (low < high) {
            const int64_t middle = (low + high + 1) / 2;
            if (fits_with(middle * k_context_step, k, v)) {
                low = middle;
            } else {
                high = middle - 1;
            }
        }
        return low * k_context_step;
    }

    void describe_refusal(Plan& plan) const {
        for (size_t d = 0; d < plan.devices.size(); ++d)
            if (used(plan.devices[d]) > capacity(d))
                plan.choices.push_back(format_text(
                    "{}: does not fit: {} wanted beside work space and reserve, {} there",
                    plan.devices[d].name, size_text(used(plan.devices[d])), size_text(capacity(d))));
        if (host_overflow(plan) > 0)
            plan.choices.push_back(format_text("host: does not fit: {} wanted, {} there",
                                               size_text(used(plan.host) + plan.host.work_bytes),
                                               size_text(request_.host.memory_bytes)));
        if (const int64_t context = largest_context(request_.k_format, request_.v_format); context > 0)
            plan.choices.push_back(format_text("a context of {} tokens would fit", context));
        const bool is_q8_0 = request_.k_format == Format::q8_0 && request_.v_format == Format::q8_0;
        if (!is_q8_0 && fits_with(request_.n_context, Format::q8_0, Format::q8_0))
            plan.choices.push_back(format_text("a KV cache of Q8_0 would fit {} tokens", request_.n_context));
        plan.choices.push_back(format_text("{} more memory would do: {} on devices, {} on the host",
                                           size_text(overflow(plan) + host_overflow(plan)),
                                           size_text(overflow(plan)), size_text(host_overflow(plan))));
    }

    const PlanRequest& request_;
    const Sizes sizes_;
    const int64_t n_layer_;
    const bool rates_are_known_ = has_all_rates(request_);
    std::vector<uint64_t> device_work_;  // by device
    uint64_t host_work_ = 0;
    std::vector<WantedPlace> wanted_;
    std::vector<int32_t> said_;   // by layer: the device on which rules place its experts
    std::vector<bool> is_named_;  // by layer: whether overrides name its experts
};

void check(const PlanRequest& request) {
    const bool is_chosen = request.for_engine && request.n_context == 0;
    if ((request.n_context < 1 && !is_chosen) || request.n_context > INT32_MAX)
        fail(Status::invalid, "a context of {} tokens is not possible", request.n_context);
    if (request.n_sequences < 1 || request.n_sequences > 65536)
        fail(Status::invalid, "{} sequences are not possible; 1 to 65536 are", request.n_sequences);
    if (request.n_device_layers < -1)
        fail(Status::invalid, "{} layers on the devices are not possible", request.n_device_layers);
    if (request.n_ubatch < 0 || request.n_ubatch > 65536)
        fail(Status::invalid, "micro-batches of {} rows are not possible; 1 to 65536 are", request.n_ubatch);
    for (const Format format : {request.k_format, request.v_format})
        if (!backend::is_kv_format(format))
            fail(Status::invalid, "the KV cache cannot hold {}", traits(format).name);
    for (size_t i = 0; i < request.devices.size(); ++i)
        for (size_t k = 0; k < i; ++k)
            if (request.devices[i].name == request.devices[k].name)
                fail(Status::invalid, "device {} is named twice", request.devices[i].name);
    if (!request.shares.empty() && request.shares.size() != request.devices.size())
        fail(Status::invalid, "{} shares of the layers for {} devices", request.shares.size(),
             request.devices.size());
    for (const double share : request.shares)
        if (!(share >= 0.0) || !std::isfinite(share))
            fail(Status::invalid, "a device's share of the layers is {}", share);
}

// Gives devices that count as equally fast one bandwidth, so that measured noise moves no layers.
void even_out(std::vector<DeviceFacts>& devices) {
    for (size_t i = 0; i < devices.size(); ++i) {
        for (size_t k = 0; k < i; ++k) {
            const double rate = devices[k].bytes_per_second;
            const bool is_even = std::abs(devices[i].bytes_per_second - rate) <= k_even_part * rate;
            if (!devices[i].is_measured || !devices[k].is_measured || !is_even) continue;
            devices[i].bytes_per_second = rate;
            break;
        }
    }
}

// Chooses the sizes of an engine in `request`, and returns the longest context that fits, if that of the request does not.
int64_t choose_kv(PlanRequest& request) {
    if (!std::exchange(request.for_engine, false)) return 0;
    const int64_t trained = request.config.n_context_train;
    const EngineWish wish = {
        .n_context = request.n_context,
        .longest = trained > 0 ? trained : kv::k_usual_kv_tokens,
        .n_requests = request.n_sequences,
        .fewer_requests = true,
        .n_rows = request.n_ubatch > 0 ? request.n_ubatch : runtime::k_default_step_rows};
    const Sizes weights = weight_sizes(request);
    const FitOf fit_of = [&](const EngineSizes& sizes) {
        PlanRequest other = request;
        other.n_context = sizes.n_context;
        other.n_kv_tokens = sizes.n_kv_tokens;
        if (other.n_ubatch == 0) other.n_ubatch = sizes.n_rows;
        const Planner planner(other, weights);
        return planner.fit(planner.place_all());
    };
    const EngineSizes sizes = choose_sizes(wish, fit_of);
    if (sizes.n_context > 0) {
        request.n_context = sizes.n_context;
        request.n_kv_tokens = sizes.n_kv_tokens;
        request.n_sequences = sizes.n_requests;
        return 0;
    }
    // The plan says what one context needs.
    const int64_t longest = wish.n_context > 0 ? longest_context(wish, fit_of) : 0;
    request.n_context = wish.n_context > 0 ? wish.n_context : backend::k_kv_page_tokens;
    request.n_kv_tokens = request.n_context;
    return longest;
}

// Returns 768 for 512, 1,024 for 768, 1,536 for 1,024, and so on.
int64_t next_ubatch(int64_t n_ubatch) {
    const bool is_power_of_2 = (n_ubatch & (n_ubatch - 1)) == 0;
    return is_power_of_2 ? n_ubatch / 2 * 3 : n_ubatch / 3 * 4;
}

// Chooses the number of rows of a prompt step in `request`, and returns the plan with it.
Plan place_with_best_ubatch(PlanRequest& request) {
    request.n_ubatch = runtime::k_default_step_rows;
    Plan best = Planner(request).place_all();
    const double least_decode = k_min_decode_part * best.decode_tokens_per_second;
    if (!has_cache(best) || !best.fits || !has_all_rates(request)) return best;
    PlanRequest larger = request;
    while (larger.n_ubatch < std::min(k_max_ubatch, request.n_context)) {
        larger.n_ubatch = next_ubatch(larger.n_ubatch);
        Plan plan = Planner(larger).place_all();
        if (!plan.fits || plan.decode_tokens_per_second < least_decode) break;
        if (plan.prompt_tokens_per_second < k_min_prompt_gain * best.prompt_tokens_per_second) continue;
        best = std::move(plan);
        request.n_ubatch = larger.n_ubatch;
    }
    return best;
}

}  // namespace

Plan arrange(const PlanRequest& request) {
    PlanRequest chosen = request;
    even_out(chosen.devices);
    const int64_t longest = choose_kv(chosen);
    Plan plan = chosen.n_ubatch == 0 ? place_with_best_ubatch(chosen) : Planner(chosen).place_all();
    plan.longest_context = longest;
    return plan;
}

Plan make_plan(const PlanRequest& request) {
    check(request);
    PlanRequest chosen = request;
    even_out(chosen.devices);
    choose_kv(chosen);
    const bool chooses_rows = request.n_ubatch == 0;
    Plan plan = chooses_rows ? place_with_best_ubatch(chosen) : Planner(chosen).place_all();
    Planner(chosen).describe(plan);
    if (chooses_rows && plan.n_ubatch > runtime::k_default_step_rows)
        plan.choices.push_back(
            format_text("prompts in micro-batches of {} rows (-ub {}): each copies the experts that are not "
                        "on the device "
                        "there, and its rows share the copies",
                        plan.n_ubatch, plan.n_ubatch));
    return plan;
}

}  // namespace minim::placement
