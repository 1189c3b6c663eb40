#include "cpu/kernels.h"

#include "cpu/avx2/lanes.h"
#include "cpu/avx2/simd.h"
#include "cpu/generic/table.h"

namespace minim::cpu {

constinit const KernelTable k_avx2_kernels = generic::make_table<avx2::Simd, avx2::Lanes>("avx2");

}  // namespace minim::cpu
