#include "cpu/generic/panels/grids.h"

#include "cpu/panel_families.h"
#include "cpu/scalar/lanes.h"

namespace minim::cpu::scalar {

constinit const LinearKernels k_grids = generic::grids_kernels<Lanes>();

}  // namespace minim::cpu::scalar
