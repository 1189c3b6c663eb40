#include "cpu/generic/panels/grids.h"

#include "cpu/avx512/lanes.h"
#include "cpu/panel_families.h"

namespace minim::cpu::avx512 {

constinit const LinearKernels k_grids = generic::grids_kernels<Lanes>();

}  // namespace minim::cpu::avx512
