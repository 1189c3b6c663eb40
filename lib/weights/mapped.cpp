// SPDX-License-Identifier: Apache-2.0
#include "weights/mapped.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/memory_info.h"
#include "weights/target.h"
#include "weights/tasks_that_throw.h"

namespace minim::weights {
namespace {

using checkpoint::k_load_block_bytes;

// The largest gap between two matrices of a block: norms and biases lie in such gaps.
constexpr int64_t k_max_gap_bytes = int64_t{1} << 20;
constexpr uint64_t k_task_bytes = uint64_t{128} << 10;
constexpr const char* k_mapped_weights = "mapped weights";

const std::byte* widen(const WeightSpec& weight, const Reader& reader,
                       std::deque<std::vector<float>>& widened) {
    std::vector<float>& values = widened.emplace_back(weight.cols);
    reader.read(weight, 0, std::as_writable_bytes(std::span(values)));
    return reinterpret_cast<const std::byte*>(values.data());
}

// Points each weight into its mapped file. Vectors that are not stored as float are widened into `widened`, whose elements
// keep their addresses. No matrix may be assembled.
PlacedMatrices map_weights(std::span<const WeightSpec* const> weights, const Reader& reader,
                           std::deque<std::vector<float>>& widened) {
    PlacedMatrices all;
    for (const WeightSpec* weight : weights) {
        const std::byte* data = reader.mapped(*weight);
        if (data == nullptr && weight->use != Use::vector)
            fail_internal("tensor {} is not stored as one matrix", weight->source.tensor->name);
        all.matrices.push_back({.data = data != nullptr ? data : widen(*weight, reader, widened),
                                .format = weight->format,
                                .rows = weight->rows,
                                .cols = weight->cols,
                                .row_bytes = weight->row_bytes});
    }
    return all;
}

// Throws out_of_memory if the blocks do not fit into the available memory.
void check_room(std::span<const Block> blocks) {
    uint64_t total = 0;
    for (const Block block : blocks) total += block.size();
    const uint64_t available = available_memory_bytes();
    if (total > available) fail_out_of_memory(k_mapped_weights, total, available);
}

// Asks the system to read the weights ahead of their use. Throws cancelled.
void read_ahead(std::span<const WeightSpec* const> weights, const Reader& reader,
                checkpoint::LoadCounter& counter) {
    for (const WeightSpec* weight : weights) {
        for (uint64_t at = 0; at < weight->bytes(); at += k_load_block_bytes) {
            const uint64_t bytes = std::min<uint64_t>(k_load_block_bytes, weight->bytes() - at);
            reader.read_ahead(*weight, at, bytes);
            counter.add(bytes);
        }
    }
}

class MappedTarget : public Target {
  public:
    MappedTarget(const DeviceWeights& part, const Reader& reader, const PlaceOptions& options)
        : part_(part),
          reader_(reader),
          prefaults_(weights::prefaults(part, options)),
          reads_ahead_(!prefaults_ && part.bytes() <= available_memory_bytes()) {
        placed_.weights = map_weights(part.weights, reader, placed_.widened);
        if (prefaults_) check_room(blocks());
    }

    uint64_t bytes_to_read() const override {
        if (!prefaults_) return reads_ahead_ ? part_.bytes() : 0;
        uint64_t total = 0;
        for (const Block block : blocks()) total += block.size();
        return total;
    }

    void read(checkpoint::LoadCounter& counter) override {
        if (prefaults_) prefault(blocks(), *part_.host, counter);
        if (reads_ahead_) read_ahead(part_.weights, reader_, counter);
    }

    PlacedWeights finish() override { return std::move(placed_); }

  private:
    std::vector<Block> blocks() const { return mapped_blocks(part_.weights, placed_.weights.matrices); }

    const DeviceWeights& part_;
    const Reader& reader_;
    const bool prefaults_;
    const bool reads_ahead_;
    PlacedWeights placed_;
};

}  // namespace

// Vectors are left out: they lie between the matrices, or outside the files if they were widened.
std::vector<Block> mapped_blocks(std::span<const WeightSpec* const> weights,
                                 std::span<const backend::Matrix> matrices) {
    std::vector<Block> all;
    for (size_t i = 0; i < weights.size(); ++i) {
        const backend::Matrix& matrix = matrices[i];
        if (weights[i]->use != Use::vector) all.emplace_back(matrix.data, matrix.rows * matrix.row_bytes);
    }
    std::ranges::sort(all, std::less<>(), [](const Block& block) { return block.data(); });
    std::vector<Block> blocks;
    for (const Block& next : all) {
        const bool joins =
            !blocks.empty() && next.data() - (blocks.back().data() + blocks.back().size()) <= k_max_gap_bytes;
        if (!joins) {
            blocks.push_back(next);
            continue;
        }
        const std::byte* begin = blocks.back().data();
        const std::byte* end = std::max(begin + blocks.back().size(), next.data() + next.size());
        blocks.back() = {begin, static_cast<size_t>(end - begin)};
    }
    return blocks;
}

void prefault(std::span<const Block> blocks, const backend::HostDevice& host,
              checkpoint::LoadCounter& counter) {
    check_room(blocks);
    const HostMemory& memory = host.host_memory();
    if (memory.locks())
        for (const Block block : blocks) memory.lock(block.data(), block.size(), k_mapped_weights);
    for (const Block block : blocks) {
        for (uint64_t at = 0; at < block.size(); at += k_load_block_bytes) {
            const Block now = block.subspan(at, std::min<uint64_t>(k_load_block_bytes, block.size() - at));
            const uint64_t n_tasks = (now.size() + k_task_bytes - 1) / k_task_bytes;
            run_tasks_that_throw(&host, static_cast<int64_t>(n_tasks), [&](int64_t i, int32_t) {
                const uint64_t from = static_cast<uint64_t>(i) * k_task_bytes;
                make_mapped_present(now.subspan(from, std::min<uint64_t>(k_task_bytes, now.size() - from)));
            });
            counter.add(now.size());
        }
    }
}

std::unique_ptr<Target> mapped_target(const DeviceWeights& part, const Reader& reader,
                                      const PlaceOptions& options) {
    return std::make_unique<MappedTarget>(part, reader, options);
}

}  // namespace minim::weights
