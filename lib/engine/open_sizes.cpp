// SPDX-License-Identifier: Apache-2.0
#include "engine/open_sizes.h"

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "backend/backend.h"
#include "backend/device_memory.h"
#include "base/error.h"
#include "base/format_text.h"
#include "base/memory_info.h"
#include "kv/page_pool.h"
#include "model/shares.h"
#include "runtime/placement.h"
#include "runtime/step_space.h"

namespace minim::engine {
namespace {

using backend::Backend;
using backend::k_kv_page_tokens;
using backend::KvLayout;
using kv::EngineSizes;
using kv::EngineWish;
using kv::Fit;
using kv::FitOf;

// A part of the memory stays free for the host.
constexpr uint64_t k_reserve = 16;

// The memory of a device, or of the host (`device` is null), as far as a session or an engine shares it. That of a device that shares
// the host's memory is the host's.
struct Place {
    const Backend* device = nullptr;
    uint64_t page_bytes = 0;    // of the layers whose KV cache is there
    uint64_t free_bytes = 0;    // without reserve
    uint64_t mapped_bytes = 0;  // weights that are mapped from files, in memory that counts as free

    std::string name() const { return device == nullptr ? "host memory" : std::string(device->name()); }
};

class Memories {
  public:
    Memories(const model::Model& model, const KvLayout& layout, int64_t n_logits_rows)
        : model_(model), n_logits_rows_(n_logits_rows) {
        std::map<const Backend*, uint64_t> page_bytes;
        for (size_t s = 0; s < model.placement().stages().size(); ++s) {
            const runtime::Stage& stage = model.placement().stages()[s];
            const KvLayout part =
                kv::layout_of(model::page_part_of(model.placement().shards()[s], model.config()), layout);
            const bool is_of_host = stage.is_on_host() || stage.backend->shares_host_memory();
            page_bytes[is_of_host ? nullptr : stage.backend.get()] +=
                static_cast<uint64_t>(part.page_bytes());
            if (is_of_host) hosts_.insert(stage.backend.get());
            hosts_.insert(stage.host());
            for (int64_t i = 0; i < stage.n_layer; ++i) hosts_.insert(stage.host_of_experts(i));
        }
        hosts_.erase(nullptr);
        for (const auto& [device, bytes] : page_bytes)
            places_.push_back(
                {device, bytes, device == nullptr ? available_memory_bytes() : device->available_bytes()});
        for (Place& place : places_)
            if (place.device == nullptr)
                for (const weights::WeightBytes& weights : model.weight_bytes())
                    place.mapped_bytes += weights.is_mapped ? weights.total : 0;
    }

    Fit fit(const EngineSizes& sizes) const {
        Fit worst = Fit::nothing;
        const auto work = work_bytes(sizes);
        for (const Place& place : places_)
            worst = std::min(worst, fit_of(place, kv_bytes(place, sizes), work.at(place.device)));
        return worst;
    }

    // Returns the place with the least room beside what the sizes need.
    struct Need {
        const Place* place;
        uint64_t needed;
    };
    Need worst(const EngineSizes& sizes) const {
        const auto work = work_bytes(sizes);
        Need worst = {nullptr, 0};
        double least = 0.0;
        for (const Place& place : places_) {
            const uint64_t needed = kv_bytes(place, sizes) + work.at(place.device);
            const double left = static_cast<double>(place.free_bytes) - static_cast<double>(needed);
            if (worst.place != nullptr && left >= least) continue;
            worst = {&place, needed};
            least = left;
        }
        return worst;
    }

  private:
    static uint64_t kv_bytes(const Place& place, const EngineSizes& sizes) {
        constexpr uint64_t k_limit = uint64_t{1} << 62;
        const auto n = static_cast<uint64_t>(kv::page_count(sizes.n_kv_tokens));
        return n > k_limit / place.page_bytes ? k_limit : n * place.page_bytes;
    }

    static Fit fit_of(const Place& place, uint64_t kv, uint64_t work) {
        const uint64_t free = place.free_bytes > work ? place.free_bytes - work : 0;
        if (kv > free) return Fit::no;
        const uint64_t usable = free - free / k_reserve;
        if (kv > usable) return Fit::tight;
        return kv + place.mapped_bytes > usable ? Fit::yes : Fit::nothing;
    }

    // Returns the bytes of steps and of logits in each place.
    std::map<const Backend*, uint64_t> work_bytes(const EngineSizes& sizes) const {
        const model::Config& config = model_.config();
        const auto of_steps = runtime::step_bytes(model_.forward(), sizes.n_rows, sizes.n_context);
        std::map<const Backend*, uint64_t> bytes;
        const int64_t n_logits = std::min(sizes.n_rows, sizes.n_requests + n_logits_rows_);
        bytes[nullptr] = static_cast<uint64_t>(n_logits * config.n_vocab) * sizeof(float);
        for (const auto& [device, work] : of_steps) bytes[hosts_.contains(device) ? nullptr : device] += work;
        for (const Place& place : places_) bytes.try_emplace(place.device, 0);
        return bytes;
    }

    const model::Model& model_;
    const int64_t n_logits_rows_;
    std::set<const Backend*> hosts_;  // backends that use the host's memory
    std::vector<Place> places_;
};

std::string gib_text(uint64_t bytes) {
    return format_text("{:.1f} GiB", static_cast<double>(bytes) / 1073741824.0);
}

[[noreturn]] void fail_sizes(const Memories& memories, const EngineWish& wish) {
    const FitOf fit_of = [&](const EngineSizes& sizes) { return memories.fit(sizes); };
    const int64_t n_context = wish.n_context > 0 ? wish.n_context : k_kv_page_tokens;
    const int64_t n_least = wish.fewer_requests ? 0 : wish.n_requests * k_kv_page_tokens;
    const auto [place, needed] =
        memories.worst({n_context, std::max(n_context, n_least), wish.n_requests, wish.n_rows});
    const int64_t n_fitting = wish.fewer_requests ? 0 : most_requests(wish, fit_of);
    const bool is_context = n_fitting == 0;
    std::string remedy;
    if (is_context) {
        remedy = format_text("a context of {} tokens would fit", longest_context(wish, fit_of));
    } else {
        remedy = format_text("{} would fit", n_fitting);
    }
    ErrorFacts facts;
    facts.requested = static_cast<int64_t>(std::min<uint64_t>(needed, INT64_MAX));
    facts.available = static_cast<int64_t>(std::min<uint64_t>(place->free_bytes, INT64_MAX));
    const bool is_host = place->device == nullptr;
    if (!is_host) facts.device = DeviceName(place->device->name());
    const std::string what = is_context ? format_text("a context of {} tokens does", n_context)
                                        : format_text("{} requests at once do", wish.n_requests);
    throw Error(
        is_host ? Status::out_of_memory : Status::out_of_device_memory, Reason::none,
        format_text("{} not fit: {} bytes needed in {} for KV cache and work space, {} bytes available; {}{}",
                    what, needed, place->name(), place->free_bytes, remedy,
                    is_host ? "" : backend::budget_text(place->device->memory())),
        facts);
}

}  // namespace

int64_t default_context(const model::Model& model, const KvLayout& layout, int64_t n_rows,
                        const Logger& log) {
    const int64_t trained = model.config().n_context_train;
    if (layout.page_bytes() <= 0)
        return trained;  // a format that the heads do not fill: an error of the cache's
    const Memories memories(model, layout, 0);
    const EngineWish wish = {.longest = trained, .n_rows = n_rows};
    const int64_t fitting =
        choose_sizes(wish, [&](const EngineSizes& sizes) { return memories.fit(sizes); }).n_context;
    if (fitting >= trained || fitting == 0) return trained;
    log.warning(
        "memory for the KV cache of the {} tokens that the model was trained for is short: {} tokens are "
        "taken; another number of tokens, or a KV format of fewer bits, may be asked for",
        trained, fitting);
    return fitting;
}

EngineSizes engine_sizes(const model::Model& model, const KvLayout& layout, const EngineWish& wish,
                         int64_t n_logits_rows) {
    const Memories memories(model, layout, n_logits_rows);
    const EngineSizes sizes =
        choose_sizes(wish, [&](const EngineSizes& wanted) { return memories.fit(wanted); });
    if (sizes.n_context == 0) fail_sizes(memories, wish);
    return sizes;
}

kv::HostLimit host_limit(const model::Model& model, uint64_t bytes) {
    kv::HostLimit limit = {.bytes = bytes, .least_free = available_memory_bytes() / k_reserve};
    for (const weights::WeightBytes& weights : model.weight_bytes())
        limit.least_free += weights.is_mapped ? weights.total : 0;
    return limit;
}

std::string sizes_text(const model::Model& model, const KvLayout& layout, const EngineSizes& sizes) {
    const uint64_t kv = static_cast<uint64_t>(sizes.n_kv_tokens) / k_kv_page_tokens *
                        static_cast<uint64_t>(layout.page_bytes());
    std::string text =
        format_text("context of {} tokens, KV cache of {} tokens ({}), {} requests at once, steps of {} rows",
                    sizes.n_context, sizes.n_kv_tokens, gib_text(kv), sizes.n_requests, sizes.n_rows);
    const int64_t trained = model.config().n_context_train;
    if (sizes.n_context >= trained) return text;
    EngineSizes longer = sizes;
    longer.n_context = trained;
    longer.n_kv_tokens = std::max(trained, sizes.n_kv_tokens);
    const Memories memories(model, layout, 0);
    const auto [place, needed] = memories.worst(longer);
    text += format_text("; a context of {} tokens, for which the model was trained, ", trained);
    if (needed > place->free_bytes)
        return text +
               format_text("needs {} more memory on {}", gib_text(needed - place->free_bytes), place->name());
    return text + format_text("needs {} of the {} available on {}", gib_text(needed),
                              gib_text(place->free_bytes), place->name());
}

}  // namespace minim::engine
