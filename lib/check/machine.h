// SPDX-License-Identifier: Apache-2.0
// Checks of this machine with a model's weights: its kernels against plain code, its devices against the CPU, its storage.
#pragma once

#include <memory>
#include <span>

#include "backend/backend.h"
#include "check/files.h"
#include "placement/backends.h"

namespace minim::check {

// Multiplies rows of matrices of each format that the file has: by the kernels of `level`, which must give the bits of scalar code,
// and on each device, which must come near them. Reads regions of the files twice, the second time not from the page cache.
void check_machine(const Opened& opened, std::span<const std::shared_ptr<const backend::Backend>> devices,
                   const placement::Threads& threads, CpuLevel level, const Reading& reading, Report& report);

}  // namespace minim::check
