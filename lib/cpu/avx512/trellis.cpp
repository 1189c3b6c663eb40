#include "cpu/generic/panels/trellis.h"

#include "cpu/avx512/lanes.h"
#include "cpu/panel_families.h"

namespace minim::cpu::avx512 {

constinit const LinearKernels k_trellis = generic::trellis_kernels<Lanes>();

}  // namespace minim::cpu::avx512
