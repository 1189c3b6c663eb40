// SPDX-License-Identifier: Apache-2.0
#include "placement/default_context.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "backend/backend.h"
#include "base/memory_info.h"
#include "model/minimax_m2.h"
#include "runtime/stage.h"
#include "runtime/step_space.h"

namespace minim::placement {
namespace {

using backend::k_kv_page_tokens;
using backend::KvLayout;

// A part of the memory stays free for the host.
constexpr uint64_t k_reserve = 16;

// The contents of one memory that depend on the context.
struct Contents {
    int64_t page_bytes = 0;  // bytes of a KV page of the layers that lie there
    uint64_t work_bytes = 0;
};

// Returns the contents of each device's memory. The key null stands for host memory.
std::map<const backend::Backend*, Contents> contents_of(const model::Model& model, KvLayout layout,
                                                        int64_t n_rows, int64_t n_context) {
    auto work = runtime::step_bytes(model.stages(), model::step_shape(model.config()), n_rows, n_context);
    std::map<const backend::Backend*, Contents> all;
    std::set<const backend::Backend*> hosts;
    for (const runtime::Stage& stage : model.stages()) {
        layout.n_layer = stage.n_layer;
        const backend::Backend* place = stage.is_on_host() ? nullptr : stage.backend.get();
        all[place].page_bytes += layout.page_bytes();
        if (place != nullptr) all[place].work_bytes = work[place];
        hosts.insert(stage.host());
        for (int64_t i = 0; i < stage.n_layer; ++i) hosts.insert(stage.host_of_experts(i));
    }
    hosts.erase(nullptr);
    for (const backend::Backend* host : hosts) all[nullptr].work_bytes += work[host];
    return all;
}

}  // namespace

int64_t default_context(const model::Model& model, const KvLayout& layout, int64_t n_rows,
                        const Logger& log) {
    const int64_t trained = model.config().n_context_train;
    if (layout.page_bytes() <= 0)
        return trained;  // a format that the heads do not fill: an error of the cache's
    int64_t fitting = std::numeric_limits<int64_t>::max();
    for (const auto& [place, contents] : contents_of(model, layout, n_rows, trained)) {
        if (contents.page_bytes == 0) continue;
        const uint64_t free = place == nullptr ? available_memory_bytes() : place->available_bytes();
        const uint64_t available = free > contents.work_bytes ? free - contents.work_bytes : 0;
        const uint64_t pages =
            (available - available / k_reserve) / static_cast<uint64_t>(contents.page_bytes);
        constexpr uint64_t k_most_pages = uint64_t{1} << 40;  // so that the tokens fit into an integer
        fitting = std::min(fitting, static_cast<int64_t>(std::min(pages, k_most_pages)) * k_kv_page_tokens);
    }
    if (fitting >= trained || fitting == 0) return trained;
    log.warning(
        "memory for the KV cache of the {} tokens that the model was trained for is short: {} tokens are "
        "taken; another number of tokens, or a KV format of fewer bits, may be asked for",
        trained, fitting);
    return fitting;
}

}  // namespace minim::placement
