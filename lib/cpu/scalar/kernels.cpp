#include "cpu/kernels.h"

#include "cpu/generic/table.h"
#include "cpu/scalar/lanes.h"
#include "cpu/scalar/simd.h"

namespace minim::cpu {

constinit const KernelTable k_scalar_kernels = generic::make_table<scalar::Simd, scalar::Lanes>("scalar");

}  // namespace minim::cpu
