// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/byte_pair_encoder.h"

#include <map>
#include <numeric>
#include <random>
#include <string>
#include <utility>

#include "support/catch.h"

using namespace minim::tokenizer;

namespace {

std::array<int32_t, 256> bytes_as_ids() {
    std::array<int32_t, 256> ids{};
    std::iota(ids.begin(), ids.end(), 0);
    return ids;
}

std::vector<int32_t> encode(const BytePairEncoder& encoder, std::string_view piece) {
    MergeScratch scratch;
    std::vector<int32_t> ids;
    encoder.encode(piece, scratch, ids);
    return ids;
}

using Ids = std::vector<int32_t>;
using Merges = std::map<std::pair<int32_t, int32_t>, std::pair<size_t, int32_t>>;  // pair -> rank, result

// Encodes by the definition: look at all pairs, join the best, start again.
Ids encode_by_definition(const Merges& merges, std::string_view piece) {
    Ids ids;
    for (const char byte : piece) ids.push_back(static_cast<uint8_t>(byte));
    while (true) {
        size_t best = ids.size();
        std::pair<size_t, int32_t> merge{merges.size(), 0};
        for (size_t i = 0; i + 1 < ids.size(); ++i) {
            const auto found = merges.find({ids[i], ids[i + 1]});
            if (found == merges.end() || found->second.first >= merge.first) continue;
            best = i;
            merge = found->second;
        }
        if (best == ids.size()) return ids;
        ids[best] = merge.second;
        ids.erase(ids.begin() + static_cast<ptrdiff_t>(best) + 1);
    }
}

}  // namespace

TEST_CASE("a piece without merges is its bytes") {
    const BytePairEncoder encoder(bytes_as_ids(), 0);
    CHECK(encode(encoder, "").empty());
    CHECK(encode(encoder, "ab") == Ids{'a', 'b'});
    CHECK(encode(encoder, "\xFF") == Ids{255});
}

TEST_CASE("the lowest rank is merged first, the leftmost of equals") {
    BytePairEncoder encoder(bytes_as_ids(), 3);
    REQUIRE(encoder.add_merge('b', 'c', 256));
    REQUIRE(encoder.add_merge('a', 'b', 257));
    REQUIRE(encoder.add_merge('a', 'a', 258));
    CHECK(encode(encoder, "abc") == Ids{'a', 256});
    CHECK(encode(encoder, "abab") == Ids{257, 257});
    CHECK(encode(encoder, "aaa") == Ids{258, 'a'});
    CHECK(encode(encoder, "aaab") == Ids{258, 257});
}

TEST_CASE("a pair has one merge") {
    BytePairEncoder encoder(bytes_as_ids(), 2);
    CHECK(encoder.add_merge('a', 'b', 256));
    CHECK_FALSE(encoder.add_merge('a', 'b', 257));
    CHECK(encode(encoder, "ab") == Ids{256});
}

TEST_CASE("encoding agrees with its definition for random merges") {
    std::mt19937 random(3);
    for (int round = 0; round < 200; ++round) {
        const int32_t n_merges = 40;
        BytePairEncoder encoder(bytes_as_ids(), n_merges);
        Merges merges;
        std::vector<int32_t> symbols = {'a', 'b', 'c'};
        for (int32_t rank = 0; rank < n_merges; ++rank) {
            const int32_t left = symbols[random() % symbols.size()];
            const int32_t right = symbols[random() % symbols.size()];
            const int32_t result = 256 + rank;
            if (!encoder.add_merge(left, right, result)) continue;
            merges.emplace(std::pair{left, right}, std::pair{merges.size(), result});
            symbols.push_back(result);
        }
        for (int i = 0; i < 20; ++i) {
            std::string piece(random() % 60, 'a');
            for (char& letter : piece) letter = static_cast<char>('a' + random() % 3);
            REQUIRE(encode(encoder, piece) == encode_by_definition(merges, piece));
        }
    }
}

TEST_CASE("a long piece is encoded in less than quadratic time") {
    constexpr int32_t levels = 18;
    BytePairEncoder encoder(bytes_as_ids(), levels);
    int32_t token = 'a';
    for (int32_t level = 0; level < levels; ++level) {
        REQUIRE(encoder.add_merge(token, token, 256 + level));
        token = 256 + level;
    }
    const size_t n = size_t{1} << levels;
    CHECK(encode(encoder, std::string(n, 'a')) == Ids{token});
    CHECK(encode(encoder, std::string(n + 5, 'a')) == Ids{token, 256 + 1, 'a'});
}
