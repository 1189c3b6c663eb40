#include "cpu/generic/panels/trellis.h"

#include "cpu/panel_families.h"
#include "cpu/scalar/lanes.h"

namespace minim::cpu::scalar {

constinit const LinearKernels k_trellis = generic::trellis_kernels<Lanes>();

}  // namespace minim::cpu::scalar
