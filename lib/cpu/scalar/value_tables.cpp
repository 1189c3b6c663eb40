#include "cpu/generic/panels/value_tables.h"

#include "cpu/panel_families.h"
#include "cpu/scalar/lanes.h"

namespace minim::cpu::scalar {

constinit const LinearKernels k_value_tables = generic::value_tables_kernels<Lanes>();

}  // namespace minim::cpu::scalar
