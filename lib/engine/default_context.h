// How many tokens a session or an engine takes memory for if its caller does not say.
#pragma once

#include <cstdint>

#include "backend/kv_view.h"
#include "base/log.h"
#include "model/model.h"

namespace minim::engine {

// The context that the model was trained for. If the memory of a device does not hold its KV cache beside the work space of steps
// of n_rows rows, as many tokens as it does hold, with a warning; if that is not even a page, the trained context, for the error
// that names the memory. `layout` has all layers. Throws out_of_memory and out_of_device_memory.
int64_t default_context(const model::Model& model, const backend::KvLayout& layout, int64_t n_rows,
                        const Logger& log);

}  // namespace minim::engine
