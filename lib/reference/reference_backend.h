// SPDX-License-Identifier: Apache-2.0
// The plain float32 backend: weights decoded exactly, no quantised activations, one thread, no optimisations. It is the
// reference for every other backend, so it follows the formulas of the model
// literally.
#pragma once

#include <memory>

#include "backend/host_device.h"
#include "base/host_memory.h"

namespace minim::reference {

// Makes the backend. Its memory is locked if `memory` is locked, and is never placed by node. Unlike the operations of the fast
// backends, those of the reference may allocate, and so throw out_of_memory.
std::unique_ptr<backend::HostDevice> make_reference_backend(const HostMemory& memory = {});

}  // namespace minim::reference
