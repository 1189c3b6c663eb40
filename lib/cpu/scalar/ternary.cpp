#include "cpu/generic/panels/ternary.h"

#include "cpu/panel_families.h"
#include "cpu/scalar/lanes.h"

namespace minim::cpu::scalar {

constinit const LinearKernels k_ternary = generic::ternary_kernels<Lanes>();

}  // namespace minim::cpu::scalar
