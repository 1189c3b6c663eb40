// A table of numbers that host and device code can both index. A namespace-scope array is out of reach of
// CUDA device code, a static constexpr variable inside a function is not; so every table is reached through a
// small accessor that holds its own copy:
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
