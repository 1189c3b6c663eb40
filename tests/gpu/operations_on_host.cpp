// SPDX-License-Identifier: Apache-2.0
// The items of cuda/exact/ as loops on the host: the same functions that the CUDA kernels call. The kernels of
// cuda/fast/ run on emulated threads (emulated_*.cpp).
#include "cuda/exact/operations.h"
#include "gpu/recorder.h"

namespace minim::cuda::exact {
namespace {

template <typename Item>
void launch(Stream, int64_t n, const Item& item) {
    test::do_or_record([=] {
        test::finish_kernels();
        for (int64_t i = 0; i < n; ++i) item(i);
    });
}

}  // namespace
}  // namespace minim::cuda::exact

#include "cuda/exact/operations.inl"
