#include "cpu/generic/panels/k_quants.h"

#include "cpu/panel_families.h"
#include "cpu/scalar/lanes.h"

namespace minim::cpu::scalar {

constinit const LinearKernels k_k_quants = generic::k_quants_kernels<Lanes>();

}  // namespace minim::cpu::scalar
