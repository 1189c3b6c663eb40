// SPDX-License-Identifier: Apache-2.0
#include "engine/default_context.h"

#include <algorithm>
#include <limits>
#include <map>

#include "backend/backend.h"
#include "base/memory_info.h"
#include "model/minimax_m2.h"
#include "runtime/stage.h"
#include "runtime/step_space.h"

namespace minim::engine {
namespace {

using backend::k_kv_page_tokens;
using backend::KvLayout;

// A part of the memory stays free for the host.
constexpr uint64_t k_reserve = 16;

int64_t layers_bytes(KvLayout layout, int64_t n_layer) {
    layout.n_layer = n_layer;
    return layout.page_bytes();
}

}  // namespace

int64_t default_context(const model::Model& model, const KvLayout& layout, int64_t n_rows,
                        const Logger& log) {
    const int64_t trained = model.config().n_context_train;
    if (layout.page_bytes() <= 0)
        return trained;  // a format that the heads do not fill: an error of the cache's
    // Work space is taken while the rest is measured.
    const runtime::StepSpace taken(model.stages(), model::step_shape(model.config()), n_rows, trained);
    std::map<const backend::Backend*, int64_t> page_bytes;  // of the layers that lie there
    for (const runtime::Stage& stage : model.stages()) {
        const backend::Backend* place = stage.backend->uses_host_memory() ? nullptr : stage.backend.get();
        page_bytes[place] += layers_bytes(layout, stage.n_layer);
    }
    int64_t fitting = std::numeric_limits<int64_t>::max();
    for (const auto& [place, bytes] : page_bytes) {
        if (bytes == 0) continue;
        const uint64_t available = place == nullptr ? available_memory_bytes() : place->available_bytes();
        const uint64_t pages = (available - available / k_reserve) / static_cast<uint64_t>(bytes);
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

}  // namespace minim::engine
