// SPDX-License-Identifier: Apache-2.0
// The default context of a session or an engine.
#pragma once

#include <cstdint>

#include "backend/kv_view.h"
#include "base/log.h"
#include "model/model.h"

namespace minim::placement {

// Returns the context that the model was trained for. If the memory of a device is too small for its KV cache and the
// work space of steps of n_rows rows, returns as many tokens as fit, with a warning; if that is less than a page,
// returns the trained context, so that allocation fails with an error that names the memory. `layout` has all layers.
// Allocates nothing.
int64_t default_context(const model::Model& model, const backend::KvLayout& layout, int64_t n_rows,
                        const Logger& log);

}  // namespace minim::placement
