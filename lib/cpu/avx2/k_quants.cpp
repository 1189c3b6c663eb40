#include "cpu/generic/panels/k_quants.h"

#include "cpu/avx2/lanes.h"
#include "cpu/panel_families.h"

namespace minim::cpu::avx2 {

constinit const LinearKernels k_k_quants = generic::k_quants_kernels<Lanes>();

}  // namespace minim::cpu::avx2
