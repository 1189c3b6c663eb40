// SPDX-License-Identifier: Apache-2.0
// A GPU as a backend: its memory, its streams, and the operations on packed weights (fast/) or in plain float (exact/).
#pragma once

#include <cstdint>
#include <memory>

#include "backend/backend.h"
#include "backend/device_memory.h"
#include "backend/plugin.h"

namespace minim::cuda {

// Makes the backend; `index` must be that of a usable device.
std::unique_ptr<backend::Backend> make_cuda_backend(int32_t index, backend::Arithmetic arithmetic,
                                                    uint64_t budget_bytes = backend::k_no_budget);

}  // namespace minim::cuda
