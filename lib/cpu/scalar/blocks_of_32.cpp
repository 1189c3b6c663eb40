#include "cpu/generic/panels/blocks_of_32.h"

#include "cpu/panel_families.h"
#include "cpu/scalar/lanes.h"

namespace minim::cpu::scalar {

constinit const LinearKernels k_blocks_of_32 = generic::blocks_of_32_kernels<Lanes>();

}  // namespace minim::cpu::scalar
