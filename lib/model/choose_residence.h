// Whether weights are copied into memory of the process, where nobody has said it.
#pragma once

#include <cstdint>
#include <optional>

#include "base/log.h"
#include "checkpoint/load.h"

namespace minim::model {

// `wanted`, or else owned where the kernels gain by it (`packs`) and `bytes` leave a tenth of the available memory
// free, for keys and values and for the others on the machine. Weights that are left in their file for want of memory
// are worth a warning: their kernels reorder them at every use.
checkpoint::Residence choose_residence(std::optional<checkpoint::Residence> wanted, uint64_t bytes,
                                       bool packs, const Logger& log);

}  // namespace minim::model
