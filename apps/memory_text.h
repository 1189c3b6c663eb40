// SPDX-License-Identifier: Apache-2.0
// The memory of a model's devices as text, for `minim` and minim-server.
#pragma once

#include <cstdint>
#include <string>

#include "minim/minim.h"

namespace program {

// Returns "512.0 MiB" or "1.5 GiB".
std::string size_text(uint64_t bytes);

// Returns "cuda:0: layers 0-30, weights 38.1 GiB (experts 36.2 GiB), KV 1.0 GiB, work 0.3 GiB, free 100.1 GiB".
std::string memory_text(const minim_device_memory& device);

}  // namespace program
