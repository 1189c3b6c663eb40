// SPDX-License-Identifier: Apache-2.0
// An entry of GET /slots, in llama.cpp's form.
#pragma once

#include <cstddef>
#include <cstdint>

#include "job_queue.h"
#include "json.h"

namespace server {

// `job`: the answer in the slot, or null. Nothing of its text is shown.
Json slot_json(size_t id, int64_t n_context, const Job* job);

}  // namespace server
