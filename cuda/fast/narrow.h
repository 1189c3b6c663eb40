// Floats to F16 or BF16, as the vendor's products want their inputs.
//
// Shape: four elements a thread, neighbouring threads take neighbours. Bytes moved: 4 in, 2 out an element. Bound: the
// memory's speed, or the start of a kernel for the rows of a step.
#pragma once

#include <cstdint>

#include "base/half.h"
#include "cuda/fast/device.h"
#include "format/format.h"

namespace minim::cuda::fast {

// All pointers lie in the device's memory.
void narrow(Stream stream, const float* x, int64_t count, Format format, uint16_t* out);

// Why a kernel of this plug-in would not start on the thread's device; null where it would. (All are compiled for the same
// generations; this one is small.)
const char* why_kernels_cannot_run() noexcept;

struct NarrowKernel {
    static constexpr int k_threads = 256;
    static constexpr int k_own = 4;

    const float* x;
    int64_t count;
    Format format;
    uint16_t* out;

    Grid grid() const { return {.n_blocks = (count + k_threads * k_own - 1) / (k_threads * k_own)}; }

    template <class T>
    MINIM_DEVICE void operator()(T& t) const {
        const int64_t first = int64_t{t.block()} * (k_threads * k_own) + t.index();
        for (int k = 0; k < k_own; ++k) {
            const int64_t i = first + k * k_threads;
            if (i >= count) return;
            out[i] = format == Format::bf16 ? float_to_bf16(x[i]) : float_to_f16(x[i]);
        }
    }
};

}  // namespace minim::cuda::fast
