#include "cpu/kernels.h"

#include "cpu/avx512/lanes.h"
#include "cpu/avx512/simd.h"
#include "cpu/generic/table.h"

namespace minim::cpu {

constinit const KernelTable k_avx512_kernels = generic::make_table<avx512::Simd, avx512::Lanes>("avx512");

}  // namespace minim::cpu
