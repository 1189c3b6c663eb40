// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/byte_pair_encoder.h"

#include <algorithm>
#include <bit>
#include <functional>

namespace minim::tokenizer {

BytePairEncoder::BytePairEncoder(const std::array<int32_t, 256>& byte_tokens, size_t n_merges)
    : byte_tokens_(byte_tokens),
      slots_(std::bit_ceil(2 * n_merges + 2), Slot{0, 0, k_no_merge}),
      hash_shift_(64 - std::countr_zero(slots_.size())) {
    results_.reserve(n_merges);
}

// Returns the slot of the pair, or the empty one for it. Multiplying by 2^64 / golden ratio spreads the keys over the
// high bits.
size_t BytePairEncoder::slot_of(int32_t left, int32_t right) const noexcept {
    const uint64_t key =
        static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
    size_t slot = (key ^ key >> 29) * 0x9E3779B97F4A7C15u >> hash_shift_;
    while (slots_[slot].rank != k_no_merge && (slots_[slot].left != left || slots_[slot].right != right)) {
        slot = (slot + 1) & (slots_.size() - 1);
    }
    return slot;
}

int32_t BytePairEncoder::rank_of(int32_t left, int32_t right) const noexcept {
    return slots_[slot_of(left, right)].rank;
}

bool BytePairEncoder::add_merge(int32_t left, int32_t right, int32_t result) {
    Slot& slot = slots_[slot_of(left, right)];
    if (slot.rank != k_no_merge) return false;
    slot = {left, right, static_cast<int32_t>(results_.size())};
    results_.push_back(result);
    return true;
}

void BytePairEncoder::start(std::string_view piece, MergeScratch& scratch) const {
    const auto count = static_cast<int32_t>(piece.size());
    scratch.symbols.clear();
    scratch.queue.clear();
    for (int32_t i = 0; i < count; ++i) {
        const auto byte = static_cast<uint8_t>(piece[i]);
        scratch.symbols.push_back({byte_tokens_[byte], i - 1, i + 1 < count ? i + 1 : -1, k_no_merge});
    }
    for (int32_t i = 0; i < count; ++i) set_pair_rank(i, scratch);
}

// Ranks the pair that starts at `index` and queues it. The queue may still have the former pair of this index: its rank
// then differs from the symbol's.
void BytePairEncoder::set_pair_rank(int32_t index, MergeScratch& scratch) const {
    auto& symbol = scratch.symbols[index];
    symbol.pair_rank =
        symbol.next < 0 ? k_no_merge : rank_of(symbol.token, scratch.symbols[symbol.next].token);
    if (symbol.pair_rank == k_no_merge) return;
    scratch.queue.push_back(static_cast<uint64_t>(symbol.pair_rank) << 32 | static_cast<uint32_t>(index));
    std::push_heap(scratch.queue.begin(), scratch.queue.end(), std::greater<>());
}

void BytePairEncoder::encode(std::string_view piece, MergeScratch& scratch, std::vector<int32_t>& out) const {
    start(piece, scratch);
    auto& symbols = scratch.symbols;
    auto& queue = scratch.queue;
    while (!queue.empty()) {
        std::pop_heap(queue.begin(), queue.end(), std::greater<>());
        const auto rank = static_cast<int32_t>(queue.back() >> 32);
        const auto index = static_cast<int32_t>(queue.back() & 0xFFFFFFFFu);
        queue.pop_back();
        auto& left = symbols[index];
        if (left.pair_rank != rank) continue;

        auto& right = symbols[left.next];
        left.token = results_[rank];
        left.next = right.next;
        right.pair_rank = k_no_merge;
        if (left.next >= 0) symbols[left.next].previous = index;
        set_pair_rank(index, scratch);
        if (left.previous >= 0) set_pair_rank(left.previous, scratch);
    }
    for (int32_t i = symbols.empty() ? -1 : 0; i >= 0; i = symbols[i].next) {
        out.push_back(symbols[i].token);
    }
}

}  // namespace minim::tokenizer
