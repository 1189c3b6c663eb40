// SPDX-License-Identifier: Apache-2.0
// Tests launch errors of the real CUDA runtime, which no emulation has.
#include "cuda/fast/operations.h"
#include "cuda/runtime.h"
#include "gpu/support.h"
#include "support/catch.h"

namespace minim::test {

TEST_CASE("a kernel that cannot be started is told of once") {
    if (!has_devices(1)) return;
    constexpr int64_t k_too_many = int64_t{1} << 31;  // blocks
    cuda::runtime::use(0);
    cuda::fast::pack(nullptr, nullptr, cuda::fast::pack_shape(Format::q8_0, 34), k_too_many, nullptr);
    CHECK(cuda::runtime::last_error() != nullptr);
    CHECK(cuda::runtime::last_error() == nullptr);
}

}  // namespace minim::test
