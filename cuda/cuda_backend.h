// A GPU as a backend: its memory, its streams, and the operations in float arithmetic (exact/).
#pragma once

#include <cstdint>
#include <memory>

#include "backend/backend.h"

namespace minim::cuda {

// `index` must be one of a usable device.
std::unique_ptr<backend::Backend> make_cuda_backend(int32_t index);

}  // namespace minim::cuda
