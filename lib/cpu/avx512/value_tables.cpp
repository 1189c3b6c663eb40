#include "cpu/generic/panels/value_tables.h"

#include "cpu/avx512/lanes.h"
#include "cpu/panel_families.h"

namespace minim::cpu::avx512 {

constinit const LinearKernels k_value_tables = generic::value_tables_kernels<Lanes>();

}  // namespace minim::cpu::avx512
