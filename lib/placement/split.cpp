// SPDX-License-Identifier: Apache-2.0
#include "placement/split.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "backend/device_memory.h"
#include "backend/experts.h"
#include "base/error.h"
#include "base/format_text.h"
#include "base/memory_info.h"
#include "model/architecture.h"
#include "model/roles.h"
#include "model/weights.h"
#include "placement/plan.h"
#include "placement/predict.h"
#include "runtime/step_space.h"
#include "weights/device_target.h"

namespace minim::placement {
namespace {

using runtime::Placement;
using runtime::Shard;
using runtime::Stage;

// The part of a device's memory that stays free.
constexpr uint64_t k_spare_part = 100;
// Stands for the memory of a device that has no limit.
constexpr uint64_t k_unlimited = uint64_t{1} << 60;

constexpr int64_t k_any_context = 8192;
constexpr int64_t k_min_whole_context = 2048;
constexpr int64_t k_min_context = 256;
// Rows of the largest step that anybody computes a prompt in.
constexpr int64_t k_max_rows = 8192;

bool has_room_of_its_own(const backend::Backend& device) {
    return device.host() == nullptr && device.available_bytes() != UINT64_MAX;
}

uint64_t usable_bytes(const backend::Backend& device) {
    const uint64_t available = device.available_bytes();
    return available - available / k_spare_part;
}

// longest_context: that fits; 0: not known.
[[noreturn]] void fail_no_room(const Shard& share, uint64_t needed, uint64_t available,
                               int64_t longest_context) {
    ErrorFacts facts;
    facts.requested = needed > INT64_MAX ? INT64_MAX : static_cast<int64_t>(needed);
    facts.available = static_cast<int64_t>(available);
    facts.device = DeviceName(share.backend->name());
    throw Error(
        Status::out_of_device_memory, Reason::none,
        format_text(
            "{}: layers {}-{} need {} bytes without experts, for weights, KV cache and work "
            "space; {} bytes available{}{}",
            share.backend->name(), share.first_layer, share.first_layer + share.n_layer - 1, needed,
            available,
            longest_context > 0 ? format_text("; a context of {} tokens would fit", longest_context) : "",
            backend::budget_text(share.backend->memory())),
        facts);
}

class Splitting {
  public:
    Splitting(const Spread& spread, const model::Config& config, std::span<const weights::WeightSpec> weights)
        : spread_(spread),
          config_(config),
          weights_(weights),
          cache_bytes_(spread.expert_cache_bytes),
          ruled_(expert_devices(spread.experts, config.n_layer)),
          fit_rows_(std::min(spread.fit_rows, runtime::k_max_step_rows)),
          n_rows_(fit_rows_ > 0 ? fit_rows_ : runtime::k_default_step_rows) {}

    Placement place(const Logger* log) {
        const bool takes_all_room = cache_bytes_ == k_cache_all_room;
        const bool chooses_context = takes_all_room && spread_.fit_context == 0;
        n_context_ = spread_.fit_context;
        if (spread_.fit_requests > 0) {
            choose_kv();
        } else if (chooses_context) {
            n_context_ = choose_context();
        }
        std::vector<Stage> stages = split();
        // Measured speeds decide which device takes what, how large a cache is, and which experts are copied. One device with room
        // for all need not be measured.
        const bool has_cache = std::ranges::any_of(stages, [](const Stage& s) { return s.cache_bytes > 0; });
        if (spread_.rates && (has_cache || (takes_all_room && spread_.devices.size() > 1)))
            rates_ = spread_.rates(spread_.devices);
        if (rates_ && takes_all_room) {
            n_rows_ = fit_rows_;
            stages = split();
        }
        if (chooses_context && log != nullptr && !is_whole(stages))
            log->info("experts: the devices have no room for all of them beside a context of {} tokens",
                      n_context_);
        set_stream_rules(stages);
        return {std::move(stages), prompt_rows_};
    }

  private:
    bool checks_room() const { return n_context_ > 0 || spread_.fit_requests > 0; }
    bool caches() const { return cache_bytes_ > 0; }

    // Returns the stages for n_context_. Throws out_of_device_memory if a device has no room for what is not experts.
    std::vector<Stage> split() {
        const Plan plan = make();
        const std::vector<int32_t>& on = plan.layer_device;
        std::vector<Stage> stages;
        std::vector<size_t> device_of_stage;
        for (int32_t d = k_on_host; d < std::ssize(spread_.devices); ++d) {
            const auto n = static_cast<int64_t>(std::ranges::count(on, d));
            if (n == 0) continue;
            stages.push_back({d == k_on_host ? spread_.host : spread_.devices[d], n});
            device_of_stage.push_back(std::max(d, 0));
        }
        place_experts(spread_.experts, stages);
        size_t layer = 0;
        for (Stage& stage : stages) {
            for (auto& place : stage.experts) {
                if (is_free(layer) && plan.expert_device[layer] == k_on_host) place = spread_.host;
                ++layer;
            }
        }
        if (caches()) give_caches(plan, device_of_stage, stages);
        if (checks_room()) check_room(stages);
        prompt_rows_ =
            std::ranges::any_of(stages, [](const Stage& s) { return s.cache_bytes > 0; }) ? plan.n_ubatch : 0;
        return stages;
    }

    // Chooses n_context_ and n_kv_tokens_ for an engine.
    void choose_kv() {
        const Plan plan = make(true);
        n_context_ = plan.n_context;
        n_kv_tokens_ = plan.n_kv_tokens;
        longest_context_ = plan.longest_context;
    }

    Plan make(bool for_engine = false) const {
        // Copied first: GCC 12 warns of members that are not initialised if a later initialiser may throw.
        std::vector<DeviceFacts> devices = facts_of_devices();
        HostFacts host = rates_ ? rates_->host : HostFacts();
        host.memory_bytes = available_memory_bytes();
        std::vector<double> shares = spread_.shares;
        std::vector<int32_t> places = places_of_rules();
        std::function<uint64_t(size_t, int64_t, int64_t)> taken_bytes = [this](size_t device, int64_t n_rows,
                                                                               int64_t n_context) {
            return checks_room() ? work_bytes(device, n_rows, n_context) : 0;
        };
        const bool is_part = spread_.n_device_layers >= 0;
        return arrange({.config = config_,
                        .weights = weights_,
                        .devices = std::move(devices),
                        .host = std::move(host),
                        .n_context = n_context_,
                        .n_sequences = for_engine ? spread_.fit_requests : 1,
                        .n_kv_tokens = n_kv_tokens_,
                        .for_engine = for_engine,
                        .n_ubatch = n_rows_,
                        .k_format = spread_.k_format,
                        .v_format = spread_.v_format,
                        .caches_host_experts = caches(),
                        .n_device_layers = is_part ? spread_.n_device_layers : config_.n_layer,
                        .shares = std::move(shares),
                        .free_experts = free_experts(),
                        .expert_devices = std::move(places),
                        .taken_bytes = std::move(taken_bytes)});
    }

    FreeExperts free_experts() const {
        if (checks_room()) return caches() ? FreeExperts::cached : FreeExperts::whole_layers;
        return FreeExperts::stay;
    }

    std::vector<DeviceFacts> facts_of_devices() const {
        std::vector<DeviceFacts> facts;
        for (size_t d = 0; d < spread_.devices.size(); ++d) {
            DeviceFacts device = rates_ ? rates_->devices[d] : DeviceFacts();
            device.name = spread_.devices[d]->name();
            device.memory_bytes = std::min(usable_bytes(*spread_.devices[d]), k_unlimited);
            facts.push_back(device);
        }
        return facts;
    }

    bool is_free(size_t layer) const { return ruled_[layer] == nullptr; }

    // Returns the place of each layer's experts that rules place. A cache for which no room is checked is for all experts.
    std::vector<int32_t> places_of_rules() const {
        std::vector<int32_t> places;
        for (const auto& device : ruled_) {
            const auto found = std::ranges::find(spread_.devices, device);
            if (device == nullptr) {
                places.push_back(caches() && !checks_room() ? k_on_host : k_free);
            } else if (device == spread_.host) {
                places.push_back(k_on_host);
            } else if (found == spread_.devices.end()) {
                places.push_back(k_on_other_device);
            } else {
                places.push_back(static_cast<int32_t>(found - spread_.devices.begin()));
            }
        }
        return places;
    }

    // Returns the bytes of a device, beside weights and KV cache, that any of its layers may need: work space, and tables of
    // experts.
    uint64_t work_bytes(size_t device, int64_t n_rows, int64_t n_context) const {
        Stage alone = {spread_.devices[device], config_.n_layer};
        alone.experts.assign(config_.n_layer, spread_.host);
        alone.cache_bytes = caches() ? 1 : 0;  // any size makes the work space of shared experts count
        auto work = runtime::step_bytes({&alone, 1}, model::shape_of(config_), n_rows, n_context);
        uint64_t bytes = work[alone.backend.get()];
        bytes += static_cast<uint64_t>(config_.n_layer * config_.n_expert) * sizeof(backend::ExpertPlace);
        for (const weights::WeightSpec& weight : weights_) {
            const weights::WeightSpec* const one = &weight;
            if (static_cast<model::Role>(weight.role) == model::Role::experts_norm)
                bytes += weights::device_bytes({&one, 1});
        }
        return bytes;
    }

    // Gives each stage with experts on the host its cache: the room that the plan found for it, or its part of the size that the
    // caller wants, in proportion to the layers.
    void give_caches(const Plan& plan, std::span<const size_t> device_of_stage,
                     std::span<Stage> stages) const {
        std::vector<int64_t> n_cached;  // layers
        for (Stage& stage : stages) {
            stage.cache_bytes = 1;  // shares_experts_of() needs a size
            int64_t n = 0;
            for (int64_t i = 0; i < stage.n_layer; ++i)
                if (stage.shares_experts_of(i)) ++n;
            n_cached.push_back(n);
        }
        const auto n_all = std::accumulate(n_cached.begin(), n_cached.end(), int64_t{0});
        for (size_t s = 0; s < stages.size(); ++s) {
            stages[s].cache_bytes = 0;
            if (n_cached[s] == 0) continue;
            const double part = static_cast<double>(n_cached[s]) / static_cast<double>(n_all);
            const uint64_t wanted = cache_bytes_ == k_cache_all_room
                                        ? k_cache_all_room
                                        : static_cast<uint64_t>(static_cast<double>(cache_bytes_) * part);
            const uint64_t room =
                checks_room() ? plan.devices[device_of_stage[s]].cache_bytes : k_cache_all_room;
            stages[s].cache_bytes = std::min(room, std::max(wanted, uint64_t{1}));
        }
    }

    uint64_t kv_bytes(int64_t n_layer) const {
        const backend::KvLayout layout = {n_layer, config_.n_head_kv, config_.head_dim, spread_.k_format,
                                          spread_.v_format};
        const int64_t n_tokens = std::max(n_context_, n_kv_tokens_);
        const int64_t n_pages = (n_tokens + backend::k_kv_page_tokens - 1) / backend::k_kv_page_tokens;
        return static_cast<uint64_t>(n_pages * layout.page_bytes());
    }

    void check_room(std::span<const Stage> stages) const {
        std::vector<Stage> without(stages.begin(), stages.end());
        size_t layer = 0;
        for (Stage& stage : without)
            for (auto& place : stage.experts)
                if (is_free(layer++) && has_room_of_its_own(*stage.backend)) place = spread_.host;
        auto work = runtime::step_bytes(without, model::shape_of(config_),
                                        std::min(runtime::k_default_step_rows, n_context_), n_context_);
        const Placement placement(without);
        for (size_t s = 0; s < without.size(); ++s) {
            const backend::Backend& device = *without[s].backend;
            if (!has_room_of_its_own(device)) continue;
            const uint64_t usable = usable_bytes(device);
            const uint64_t needed =
                kv_bytes(without[s].n_layer) + work[&device] +
                weights::device_bytes(model::part_of(placement.shards()[s], weights_).weights);
            if (needed > usable) fail_no_room(placement.shards()[s], needed, usable, longest_context_);
        }
    }

    // Returns whether all experts that no rule places are on their layers' devices.
    bool is_whole(std::span<const Stage> stages) const {
        size_t layer = 0;
        bool is_whole = true;
        for (const Stage& stage : stages)
            for (const auto& place : stage.experts) is_whole &= !is_free(layer++) || place == stage.backend;
        return is_whole;
    }

    // Returns the context to leave room for, as Spread::fit_context says.
    int64_t choose_context() {
        const int64_t longest = config_.n_context_train;
        const int64_t wanted = longest > 0 ? std::min(k_any_context, longest) : k_any_context;
        const auto least = [wanted](int64_t context) { return std::min(context, wanted); };
        const auto split_for = [&](int64_t n_context) {
            n_context_ = n_context;
            return split();
        };
        // Returns nothing if there is no room for a context of that length.
        const auto split_if_possible = [&](int64_t n_context) -> std::optional<std::vector<Stage>> {
            try {
                return split_for(n_context);
            } catch (const Error& error) {
                const bool is_short = error.status() == Status::out_of_device_memory &&
                                      error.facts().requested > error.facts().available;
                if (!is_short || n_context <= least(k_min_context)) throw;
                return std::nullopt;
            }
        };
        int64_t context = wanted;
        std::optional<std::vector<Stage>> stages = split_if_possible(context);
        while (!stages) {
            context = least(std::max(context / 2, k_min_context));
            stages = split_if_possible(context);
        }
        if (is_whole(*stages)) return context;
        for (int64_t shorter = context / 2; shorter >= least(k_min_whole_context); shorter /= 2)
            if (is_whole(split_for(shorter))) return shorter;
        const auto kv_is_larger_than_cache = [&] {
            uint64_t cache = 0;
            uint64_t kv = 0;
            for (const Stage& stage : split_for(context)) {
                if (!has_room_of_its_own(*stage.backend)) continue;
                cache += stage.cache_bytes;
                kv += kv_bytes(stage.n_layer);
            }
            return kv > cache;
        };
        while (kv_is_larger_than_cache() && context / 2 >= least(k_min_context)) context /= 2;
        return context;
    }

    // Sets when steps copy experts to the devices that have a cache.
    void set_stream_rules(std::span<Stage> stages) const {
        if (!rates_) return;
        uint64_t bytes = 0;
        for (const weights::WeightSpec& weight : weights_)
            if (weight.is_expert()) bytes += weight.bytes();
        const double expert_bytes =
            static_cast<double>(bytes) / static_cast<double>(config_.n_layer * config_.n_expert);
        for (Stage& stage : stages) {
            if (stage.cache_bytes == 0) continue;
            const auto device = std::ranges::find(spread_.devices, stage.backend);
            const int64_t i = device - spread_.devices.begin();
            stage.stream = stream_rule(rates_->devices[i], rates_->host, config_, expert_bytes, k_max_rows);
        }
    }

    const Spread& spread_;
    const model::Config& config_;
    const std::span<const weights::WeightSpec> weights_;
    const uint64_t cache_bytes_;  // of all devices together
    // By layer: the device on which a rule places its experts; null: none does.
    const std::vector<std::shared_ptr<const backend::Backend>> ruled_;
    int64_t n_context_ = 0;        // 0: room is not checked
    int64_t n_kv_tokens_ = 0;      // of the KV cache of an engine; 0: one context
    int64_t longest_context_ = 0;  // that fits an engine, if that of the request does not; 0: not known
    const int64_t fit_rows_;       // as Spread::fit_rows
    int64_t n_rows_;               // of a prompt step; 0: the plan chooses
    int64_t prompt_rows_ = 0;      // of the last split
    std::optional<MachineRates> rates_;
};

}  // namespace

model::Model::Place split_over(Spread spread, const Logger* log) {
    if (spread.devices.empty()) fail(Status::invalid, "no devices for the layers");
    if (!spread.shares.empty() && spread.shares.size() != spread.devices.size())
        fail(Status::invalid, "{} shares of the layers for {} devices", spread.shares.size(),
             spread.devices.size());
    if (spread.n_device_layers < -1)
        fail(Status::invalid, "{} layers on the devices are not possible", spread.n_device_layers);
    if (spread.fit_context < 0)
        fail(Status::invalid, "a context of {} tokens is not possible", spread.fit_context);
    if (spread.fit_requests < 0)
        fail(Status::invalid, "room for {} requests is not possible", spread.fit_requests);
    if (spread.fit_context > INT32_MAX)
        fail(Status::invalid, "room for a context of {} tokens is not possible", spread.fit_context);
    return [spread = std::move(spread), log](const model::Config& config,
                                             std::span<const weights::WeightSpec> weights) {
        return Splitting(spread, config, weights).place(log);
    };
}

}  // namespace minim::placement
