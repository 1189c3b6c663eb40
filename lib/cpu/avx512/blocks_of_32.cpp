#include "cpu/generic/panels/blocks_of_32.h"

#include "cpu/avx512/lanes.h"
#include "cpu/panel_families.h"

namespace minim::cpu::avx512 {

constinit const LinearKernels k_blocks_of_32 = generic::blocks_of_32_kernels<Lanes>();

}  // namespace minim::cpu::avx512
