// SPDX-License-Identifier: Apache-2.0
// Byte-pair encoding of one piece: start from one token a byte, then join the adjacent pair whose merge has
// the lowest rank, the leftmost of equals, until no pair has a merge. Pieces can be long (a run of letters is
// one piece), so the work is O(n log n).
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace minim::tokenizer {

// Work space for encoding a piece; the caller reuses it from piece to piece to save allocations.
class MergeScratch {
    friend class BytePairEncoder;

    struct Symbol {
        int32_t token;
        int32_t previous;  // index of the nearest remaining symbol to the left, -1 at the edge
        int32_t next;
        int32_t pair_rank;  // rank of the merge of this symbol and the next one, or k_no_merge
    };

    std::vector<Symbol> symbols;
    std::vector<uint64_t> queue;  // rank << 32 | symbol index, a heap with the smallest on top
};

// Immutable once built; any thread.
class BytePairEncoder {
  public:
    // byte_tokens[b] is the token of the single byte b.
    BytePairEncoder(const std::array<int32_t, 256>& byte_tokens, size_t n_merges);

    // Adds a merge. Ranks follow the order of the calls, at most n_merges. Returns false if the pair has a merge already.
    bool add_merge(int32_t left, int32_t right, int32_t result);

    // Appends the tokens of `piece`, which is shorter than 2^31 bytes.
    void encode(std::string_view piece, MergeScratch& scratch, std::vector<int32_t>& out) const;

  private:
    // One slot of an open-addressed hash table at most half full.
    struct Slot {
        int32_t left;
        int32_t right;
        int32_t rank;
    };

    static constexpr int32_t k_no_merge = -1;

    size_t slot_of(int32_t left, int32_t right) const noexcept;
    int32_t rank_of(int32_t left, int32_t right) const noexcept;
    void start(std::string_view piece, MergeScratch& scratch) const;
    void set_pair_rank(int32_t index, MergeScratch& scratch) const;

    std::array<int32_t, 256> byte_tokens_;
    std::vector<Slot> slots_;
    int hash_shift_;
    std::vector<int32_t> results_;  // by rank
};

}  // namespace minim::tokenizer
