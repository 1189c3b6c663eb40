// SPDX-License-Identifier: Apache-2.0
#include "weights/host_target.h"

#include <algorithm>

#include "base/checked.h"
#include "base/error.h"
#include "weights/tasks_that_throw.h"

namespace minim::weights {
namespace {

// The bytes that a job prefaults in advance, and the bytes of one task: a huge page.
constexpr uint64_t k_present_job_bytes = uint64_t{64} << 20;
constexpr uint64_t k_present_bytes = uint64_t{2} << 20;
constexpr uint64_t k_alignment = 64;

constexpr const char* k_what = "weights in host memory";

}  // namespace

HostTarget::HostTarget(const Layout& layout, const backend::HostDevice& backend) : backend_(backend) {
    std::vector<uint64_t> sizes(layout.buffer_bytes().begin(), layout.buffer_bytes().end());
    for (uint64_t& bytes : sizes) bytes = align_up(bytes, k_alignment);
    const HostMemory& memory = backend_.host_memory();
    for (size_t b = 0; b < sizes.size(); ++b) {
        const int32_t node = b == layout.common_buffer() ? HostMemory::k_any_node : static_cast<int32_t>(b);
        buffers_.push_back(memory.take(sizes[b], k_what, node, Buffer::Presence::later));
    }
    present_bytes_.resize(buffers_.size());
}

Target HostTarget::target() {
    return {[this](std::span<const Piece> pieces) { prefault(pieces); },
            [this](const Piece& piece) { return buffers_[piece.run->buffer].data() + piece.to(); }};
}

// Prefaults the memory of the pieces and some memory after it. Uses all threads, because zeroing pages takes time.
void HostTarget::prefault(std::span<const Piece> pieces) {
    for (size_t b = 0; b < buffers_.size(); ++b) {
        const Buffer& buffer = buffers_[b];
        uint64_t end = 0;
        for (const Piece& piece : pieces) {
            if (piece.run->buffer != b) continue;
            end = std::max(end, piece.to() + piece.stored_bytes());
        }
        const uint64_t from = present_bytes_[b];
        if (end <= from) continue;
        end = std::min(buffer.size(), align_up(end + k_present_job_bytes, k_present_bytes));
        run_tasks_that_throw(&backend_,
                             static_cast<int64_t>((end - from + k_present_bytes - 1) / k_present_bytes),
                             [&](int64_t i, int32_t) {
                                 const uint64_t at = from + static_cast<uint64_t>(i) * k_present_bytes;
                                 buffer.make_present(at, std::min(k_present_bytes, end - at), k_what);
                             });
        present_bytes_[b] = end;
    }
}

}  // namespace minim::weights
