#include "model/mapped_weights.h"

#include <algorithm>
#include <functional>

#include "base/error.h"
#include "base/file.h"
#include "base/memory_info.h"
#include "model/tasks_that_throw.h"
#include "model/visit_weights.h"

namespace minim::model {
namespace {

using Block = std::span<const std::byte>;

// What norms and biases take between two matrices.
constexpr int64_t k_most_gap_bytes = int64_t{1} << 20;
constexpr uint64_t k_task_bytes = uint64_t{128} << 10;
constexpr const char* k_what = "mapped weights";

// Norms lie between the matrices, or outside the files where they were widened.
struct MatrixCollector {
    std::vector<Block>& blocks;

    void matrix(const backend::Matrix& matrix, MatrixUse) {
        blocks.emplace_back(matrix.data, bytes_of(matrix));
    }
    void vector(const backend::Vector&) {}
    void stack(const backend::ExpertStack& stack) {
        for (const std::byte* expert : stack.expert)
            blocks.emplace_back(expert, static_cast<size_t>(stack.rows * stack.row_bytes));
    }
};

}  // namespace

std::vector<Block> mapped_blocks(std::span<const Share> shares, const Weights& weights) {
    std::vector<Block> matrices;
    MatrixCollector collector{matrices};
    for (const Share& share : shares)
        if (share.backend->uses_host_memory()) visit_share(share, weights, collector);
    std::ranges::sort(matrices, std::less<>(), [](const Block& block) { return block.data(); });
    std::vector<Block> blocks;
    for (const Block& next : matrices) {
        const bool joins = !blocks.empty() &&
                           next.data() - (blocks.back().data() + blocks.back().size()) <= k_most_gap_bytes;
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

void make_present(std::span<const Block> blocks, const backend::Backend& backend,
                  const checkpoint::Progress& progress, const CancelToken* cancel) {
    using checkpoint::k_load_block_bytes;
    uint64_t total = 0;
    for (const Block block : blocks) total += block.size();
    const uint64_t available = available_memory_bytes();
    if (total > available) fail_out_of_memory(k_what, total, available);
    const HostMemory& memory = backend.host_memory();
    if (memory.locks())
        for (const Block block : blocks) memory.lock(block.data(), block.size(), k_what);
    checkpoint::LoadCounter counter(total, progress, cancel);
    for (const Block block : blocks) {
        for (uint64_t at = 0; at < block.size(); at += k_load_block_bytes) {
            const Block now = block.subspan(at, std::min<uint64_t>(k_load_block_bytes, block.size() - at));
            const uint64_t n_tasks = (now.size() + k_task_bytes - 1) / k_task_bytes;
            run_tasks_that_throw(backend, static_cast<int64_t>(n_tasks), [&](int64_t i, int32_t) {
                const uint64_t from = static_cast<uint64_t>(i) * k_task_bytes;
                make_mapped_present(now.subspan(from, std::min<uint64_t>(k_task_bytes, now.size() - from)));
            });
            counter.add(now.size());
        }
    }
}

}  // namespace minim::model
