// SPDX-License-Identifier: Apache-2.0
#include "runtime/transfer.h"

#include "base/checked.h"
#include "base/error.h"

namespace minim::runtime {

uint64_t float_bytes(int64_t rows, int64_t row_floats) {
    uint64_t bytes = 0;
    if (!checked_mul(static_cast<uint64_t>(rows), static_cast<uint64_t>(row_floats) * sizeof(float), bytes))
        fail_out_of_memory("activations", UINT64_MAX, 0);
    return bytes;
}

void pass(const Side& from, const float* data, const Side& to, float* place, int64_t count,
          std::byte* passing) {
    const uint64_t bytes = static_cast<uint64_t>(count) * sizeof(float);
    const auto* source = reinterpret_cast<const std::byte*>(data);
    auto* target = reinterpret_cast<std::byte*>(place);
    if (to.backend.receive(to.scratch, target, from.backend, from.scratch, source, bytes)) return;
    if (to.is_on_host) {
        from.backend.download(from.scratch, target, source, bytes);
        return;
    }
    if (!from.is_on_host) {
        from.backend.download(from.scratch, passing, source, bytes);
        from.backend.wait(from.scratch);
        source = passing;
    }
    to.backend.upload(to.scratch, target, source, bytes);
}

void wait_for_passed(const Side& from, const Side& to) {
    if (to.is_on_host) from.backend.wait(from.scratch);
}

}  // namespace minim::runtime
