// How the stress test makes its steps differ in what must not matter.
#pragma once

#include <cstdint>

namespace minim::test {

// Before step `step` of the only text. On a GPU every step differs by itself; emulated threads are told how.
void vary_step(int64_t step);

}  // namespace minim::test
