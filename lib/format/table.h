// SPDX-License-Identifier: Apache-2.0
// A table of numbers that host and device code can both index. CUDA device code cannot use an array at namespace scope, but it
// can use a static constexpr variable inside a function. So every table has a small accessor with its own copy:
//
//   MINIM_HOST_DEVICE const int8_t* iq4k_values() {
//       static constexpr auto k_values = codebooks::k_iq4k;
//       return k_values.data;
//   }
#pragma once

#include <cstddef>

namespace minim {

template <typename T, size_t n>
struct Table {
    T data[n];
};

}  // namespace minim
