// SPDX-License-Identifier: Apache-2.0
#include "placement/fit_experts.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "backend/device_memory.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/format_text.h"
#include "base/memory_info.h"
#include "model/minimax_m2.h"
#include "model/weights.h"
#include "runtime/stage.h"
#include "runtime/step_space.h"
#include "weights/device_target.h"

namespace minim::placement {
namespace {

using backend::k_kv_page_tokens;
using model::Share;
using runtime::Stage;

constexpr uint64_t k_spare_part = 100;
constexpr uint64_t k_host_spare_part = 20;

constexpr int64_t k_any_context = 8192;
constexpr int64_t k_least_whole_context = 2048;
constexpr int64_t k_least_context = 256;

uint64_t kv_bytes(int64_t n_layer, const FitRequest& request) {
    const model::Config& config = request.config;
    const backend::KvLayout layout = {n_layer, config.n_head_kv, config.head_dim, request.k_format,
                                      request.v_format};
    const int64_t n_pages = (request.n_context + k_kv_page_tokens - 1) / k_kv_page_tokens;
    uint64_t bytes = 0;
    return checked_mul(static_cast<uint64_t>(n_pages), static_cast<uint64_t>(layout.page_bytes()), bytes)
               ? bytes
               : UINT64_MAX;
}

bool has_room_of_its_own(const Stage& stage) {
    return !stage.is_on_host() && stage.backend->available_bytes() != UINT64_MAX;
}

uint64_t share_bytes(const Share& share, std::span<const weights::WeightSpec> weights) {
    return weights::device_bytes(model::part_of(share, weights).weights);
}

[[noreturn]] void fail_no_room(const Share& share, uint64_t needed, uint64_t available) {
    ErrorFacts facts;
    facts.requested = needed > INT64_MAX ? INT64_MAX : static_cast<int64_t>(needed);
    facts.available = static_cast<int64_t>(available);
    facts.device = DeviceName(share.backend->name());
    throw Error(Status::out_of_device_memory, Reason::none,
                format_text("{}: layers {}-{} need {} bytes without experts, for weights, KV cache and work "
                            "space; {} bytes available{}",
                            share.backend->name(), share.first_layer, share.first_layer + share.n_layer - 1,
                            needed, available, backend::budget_text(share.backend->memory())),
                facts);
}

// The stages, with the experts that may be moved on the host, and the bytes that are then left on each device.
class Fit {
  public:
    Fit(const FitRequest& request, std::span<Stage> stages) : request_(request), stages_(stages) {
        send_free_experts();
        auto work =
            runtime::step_bytes(stages, model::step_shape(request.config),
                                std::min(runtime::k_default_step_rows, request.n_context), request.n_context);
        shares_ = model::shares_of(stages);
        for (size_t s = 0; s < stages.size(); ++s)
            left_.push_back(has_room_of_its_own(stages[s]) ? left_on(s, work[stages[s].backend.get()]) : 0);
    }

    // Returns whether all experts that are not pinned fit on their layers' devices.
    bool fill() {
        const bool all_have_room = has_room_for_all();
        const bool host_keeps_all = !all_have_room && request_.cache_bytes > 0 && host_has_room();
        if (!host_keeps_all)
            for (size_t s = 0; s < stages_.size(); ++s) keep_last_layers(s);
        std::vector<size_t> n_cached(stages_.size());  // layers
        for (size_t s = 0; s < stages_.size(); ++s)
            for (int64_t i = 0; i < stages_[s].n_layer; ++i)
                if (stages_[s].shares_experts_of(i)) ++n_cached[s];
        const size_t n_all = std::accumulate(n_cached.begin(), n_cached.end(), size_t{0});
        for (size_t s = 0; s < stages_.size(); ++s) {
            const bool caches = n_cached[s] > 0 && (all_have_room || host_keeps_all);
            stages_[s].cache_bytes = caches ? cache_bytes(s, n_cached[s], n_all) : 0;
        }
        return all_have_room;
    }

  private:
    void send_free_experts() {
        size_t layer = 0;
        for (Stage& stage : stages_) {
            std::vector<int64_t>& free = free_.emplace_back();
            for (int64_t i = 0; i < stage.n_layer; ++i) {
                if (request_.is_pinned[layer++] || !has_room_of_its_own(stage)) continue;
                if (stage.experts.empty())
                    stage.experts.assign(static_cast<size_t>(stage.n_layer), stage.backend);
                stage.experts[static_cast<size_t>(i)] = request_.host;
                free.push_back(i);
            }
            // Any size above 0 will do here: it makes the work space of shared experts count.
            stage.cache_bytes = request_.cache_bytes > 0 && has_room_of_its_own(stage) ? 1 : 0;
        }
    }

    uint64_t left_on(size_t s, uint64_t work) const {
        const uint64_t available = stages_[s].backend->available_bytes();
        const uint64_t usable = available - available / k_spare_part;
        uint64_t needed = kv_bytes(stages_[s].n_layer, request_);
        for (const uint64_t more : {share_bytes(shares_[s], request_.weights), work})
            if (!checked_add(needed, more, needed)) needed = UINT64_MAX;
        if (needed > usable) fail_no_room(shares_[s], needed, usable);
        return usable - needed;
    }

    uint64_t expert_bytes(size_t s, int64_t layer_of_stage) const {
        return share_bytes(
            {.backend = stages_[s].backend, .expert_layers = {shares_[s].first_layer + layer_of_stage}},
            request_.weights);
    }
    uint64_t free_bytes(size_t s) const {
        uint64_t bytes = 0;
        for (const int64_t i : free_[s]) bytes += expert_bytes(s, i);
        return bytes;
    }

    bool has_room_for_all() const {
        for (size_t s = 0; s < stages_.size(); ++s)
            if (free_bytes(s) > left_[s]) return false;
        return true;
    }

    // Returns whether the host has room for all experts: it keeps them even if a device has a cache of them.
    bool host_has_room() const {
        uint64_t bytes = 0;
        for (size_t s = 0; s < stages_.size(); ++s) bytes += free_bytes(s);
        const uint64_t available = available_memory_bytes();
        return bytes <= available - available / k_host_spare_part;
    }

    // Returns the bytes of the cache of stage s, which has n_cached of the n_all layers with a cache: at most the bytes that are
    // left, less the tables. If the caller wants a certain size, returns the part of it for these layers.
    uint64_t cache_bytes(size_t s, size_t n_cached, size_t n_all) const {
        const uint64_t tables =
            n_cached * static_cast<uint64_t>(request_.config.n_expert) * sizeof(backend::ExpertPlace);
        const uint64_t room = left_[s] > tables ? left_[s] - tables : 0;
        if (request_.cache_bytes == k_cache_all_room) return room;
        const double part = static_cast<double>(n_cached) / static_cast<double>(n_all);
        return std::min(room, static_cast<uint64_t>(static_cast<double>(request_.cache_bytes) * part));
    }

    void keep_last_layers(size_t s) {
        for (size_t i = free_[s].size(); i-- > 0;) {
            const uint64_t bytes = expert_bytes(s, free_[s][i]);
            if (bytes > left_[s]) break;
            left_[s] -= bytes;
            stages_[s].experts[static_cast<size_t>(free_[s][i])] = stages_[s].backend;
        }
    }

    const FitRequest& request_;
    const std::span<Stage> stages_;
    std::vector<Share> shares_;
    std::vector<std::vector<int64_t>> free_;  // by stage: the layers whose experts may be moved
    std::vector<uint64_t> left_;              // by stage: the bytes left on its device
};

// Returns whether all experts are on their layers' devices.
bool fit(const FitRequest& request, std::span<Stage> stages) {
    if (request.n_context > INT32_MAX)
        fail(Status::invalid, "room for a context of {} tokens is not possible", request.n_context);
    if (std::ranges::none_of(stages, has_room_of_its_own)) return true;
    return Fit(request, stages).fill();
}

}  // namespace

void fit_experts(const FitRequest& request, std::span<Stage> stages) {
    fit(request, stages);
}

int64_t fit_experts_to_any_context(FitRequest request, std::span<Stage> stages) {
    const int64_t longest = request.config.n_context_train;
    const int64_t wanted = longest > 0 ? std::min(k_any_context, longest) : k_any_context;
    const auto least = [wanted](int64_t context) { return std::min(context, wanted); };
    const std::vector<Stage> before(stages.begin(), stages.end());
    const auto fits = [&](int64_t n_context) {
        std::ranges::copy(before, stages.begin());
        request.n_context = n_context;
        return fit(request, stages);
    };
    // Returns nothing if there is no room for a context of that length.
    const auto fits_if_possible = [&](int64_t n_context) -> std::optional<bool> {
        try {
            return fits(n_context);
        } catch (const Error& error) {
            const bool is_short = error.status() == Status::out_of_device_memory &&
                                  error.facts().requested > error.facts().available;
            if (!is_short || n_context <= least(k_least_context)) throw;
            return std::nullopt;
        }
    };
    int64_t context = wanted;
    std::optional<bool> is_whole = fits_if_possible(context);
    while (!is_whole) {
        context = least(std::max(context / 2, k_least_context));
        is_whole = fits_if_possible(context);
    }
    if (*is_whole) return context;
    for (int64_t shorter = context / 2; shorter >= least(k_least_whole_context); shorter /= 2)
        if (fits(shorter)) return shorter;
    const auto kv_is_larger_than_cache = [&] {
        fits(context);
        uint64_t cache = 0;
        uint64_t kv = 0;
        for (const Stage& stage : stages) {
            if (!has_room_of_its_own(stage)) continue;
            cache += stage.cache_bytes;
            kv += kv_bytes(stage.n_layer, request);
        }
        return kv > cache;
    };
    while (kv_is_larger_than_cache() && context / 2 >= least(k_least_context)) context /= 2;
    return context;
}

}  // namespace minim::placement
