#include "cpu/generic/panels/ternary.h"

#include "cpu/avx512/lanes.h"
#include "cpu/panel_families.h"

namespace minim::cpu::avx512 {

constinit const LinearKernels k_ternary = generic::ternary_kernels<Lanes>();

}  // namespace minim::cpu::avx512
