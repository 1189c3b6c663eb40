// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>
#include <utility>

#include "base/checked.h"
#include "base/error.h"
#include "base/memory_info.h"
#include "weights/host_room.h"
#include "weights/load.h"
#include "weights/target.h"
#include "weights/tasks_that_throw.h"

namespace minim::weights {
namespace {

// The bytes that a job prefaults in advance, and the bytes of one task: a huge page.
constexpr uint64_t k_present_job_bytes = uint64_t{64} << 20;
constexpr uint64_t k_present_bytes = uint64_t{2} << 20;
constexpr uint64_t k_host_alignment = 64;

constexpr const char* k_host_weights = "weights in host memory";

class HostTarget : public Target {
  public:
    HostTarget(const DeviceWeights& part, const Reader& reader, const PlaceOptions& options,
               const Logger& log)
        : backend_(*part.host),
          reader_(reader),
          layout_(part.weights, part.host,
                  {.splits_nodes = true,
                   .unpacked = choose_unpacked(*part.host, part.weights, options.expand, log)}) {
        const std::span<const uint64_t> bytes = layout_.buffer_bytes();
        check_host_room(part, std::accumulate(bytes.begin(), bytes.end(), uint64_t{0}),
                        available_memory_bytes());
        const HostMemory& memory = backend_.host_memory();
        for (size_t b = 0; b < bytes.size(); ++b) {
            const int32_t node =
                b == layout_.common_buffer() ? HostMemory::k_any_node : static_cast<int32_t>(b);
            placed_.host.push_back(memory.take(align_up(bytes[b], k_host_alignment), k_host_weights, node,
                                               Buffer::Presence::later));
        }
        present_bytes_.resize(bytes.size());
    }

    uint64_t bytes_to_read() const override { return layout_.read_bytes(); }

    void read(checkpoint::LoadCounter& counter) override {
        const PieceTarget target = {
            [this](std::span<const Piece> pieces) { prefault(pieces); },
            [this](const Piece& piece) { return placed_.host[piece.run->buffer].data() + piece.to(); }};
        load(layout_, reader_, &backend_, target, counter);
        placed_.weights =
            layout_.placed([this](const Run& run) { return placed_.host[run.buffer].data() + run.to; });
    }

    PlacedWeights finish() override { return std::move(placed_); }

  private:
    void prefault(std::span<const Piece> pieces);

    const backend::HostDevice& backend_;
    const Reader& reader_;
    BufferLayout layout_;
    PlacedWeights placed_;
    std::vector<uint64_t> present_bytes_;  // of each buffer: the bytes prefaulted so far
};

// Prefaults the memory of the pieces and some memory after it. Uses all threads, because zeroing pages takes time.
void HostTarget::prefault(std::span<const Piece> pieces) {
    for (size_t b = 0; b < placed_.host.size(); ++b) {
        const Buffer& buffer = placed_.host[b];
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
                                 buffer.prefault(at, std::min(k_present_bytes, end - at), k_host_weights);
                             });
        present_bytes_[b] = end;
    }
}

}  // namespace

std::unique_ptr<Target> host_target(const DeviceWeights& part, const Reader& reader,
                                    const PlaceOptions& options, const Logger& log) {
    return std::make_unique<HostTarget>(part, reader, options, log);
}

}  // namespace minim::weights
