// SPDX-License-Identifier: Apache-2.0
// The sizes of a session or an engine of an open model, by the memory that is free.
#pragma once

#include <cstdint>
#include <string>

#include "backend/kv_view.h"
#include "base/log.h"
#include "kv/engine_sizes.h"
#include "kv/prefix_cache.h"
#include "model/model.h"

namespace minim::engine {

// Returns the context that the model was trained for. If the memory of a device is too small for its KV cache and the
// work space of steps of n_rows rows, returns as many tokens as fit, with a warning; if that is less than a page,
// returns the trained context, so that allocation fails with an error that names the memory. `layout` has all layers.
// Allocates nothing.
int64_t default_context(const model::Model& model, const backend::KvLayout& layout, int64_t n_rows,
                        const Logger& log);

// Returns the sizes that fit (choose_sizes()). Throws out_of_memory or out_of_device_memory if what the wish asks for does not
// fit; the message says what does. n_logits_rows: rows of logits on the host beside one for each request.
kv::EngineSizes engine_sizes(const model::Model& model, const backend::KvLayout& layout,
                             const kv::EngineWish& wish, int64_t n_logits_rows);

// Returns the limit of host memory for pages that leave the prefix cache. A part of the memory that is available now stays free, and
// besides so much as the weights need that are mapped from files.
kv::HostLimit host_limit(const model::Model& model, uint64_t bytes);

// Returns a sentence about sizes: "context of 65536 tokens, KV cache of 131072 tokens (31.0 GiB), 16 requests at once, steps of 512
// rows; a context of 196608 tokens needs 12.3 GiB more memory on cuda:0". Call it before the memory is allocated.
std::string sizes_text(const model::Model& model, const backend::KvLayout& layout,
                       const kv::EngineSizes& sizes);

}  // namespace minim::engine
