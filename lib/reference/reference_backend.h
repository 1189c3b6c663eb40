// The plain float32 backend: weights decoded exactly, no quantised activations, one thread, no cleverness. It
// is the yardstick every other backend is compared with, so it follows the formulas of the model word for
// word.
#pragma once

#include <memory>

#include "backend/backend.h"

namespace minim::reference {

// Memory is locked where `memory` is, and never placed by node. Its operations may allocate (and so throw out_of_memory), unlike those of the fast backends.
std::unique_ptr<backend::Backend> make_reference_backend(const HostMemory& memory = {});

}  // namespace minim::reference
