// SPDX-License-Identifier: Apache-2.0
// Dots by tables against the values themselves: every code beside every sign of an input, in every place of a word.
#include "cuda/fast/table_dots.h"

#include <array>
#include <set>
#include <utility>

#include "cuda/fast/operations.h"
#include "gpu/fixture.h"
#include "gpu/launch_paths.h"
#include "gpu/recorder.h"
#include "support/catch.h"

namespace minim::test {
namespace {

using namespace cuda::fast;

// Eight codes and inputs, as a kernel has them.
struct Eight {
    std::array<int, 8> code;
    std::array<int, 8> x;

    EightCodes words() const {
        EightCodes words = {};
        for (uint32_t j = 0; j < 8; ++j) {
            const auto bits = static_cast<uint32_t>(code[j]);
            words.nibbles |= (bits & 15U) << (4 * j);
            for (uint32_t i = 0; i < 2; ++i) words.further[i] |= (bits >> (4 + i) & 1U) << (4 * j + 3);
        }
        return words;
    }
    // Returns the word of inputs of one half.
    uint32_t inputs(uint32_t half) const {
        uint32_t word = 0;
        for (uint32_t j = 0; j < 4; ++j) word |= (static_cast<uint32_t>(x[4 * half + j]) & 255U) << (8 * j);
        return word;
    }
};

// Calls check(eight) for each code and sign in each place, beside others.
template <class Check>
void for_each_code(int n_codes, const Check& check) {
    Random random(11);
    for (int code = 0; code < n_codes; ++code) {
        for (size_t place = 0; place < 8; ++place) {
            for (const int x : {-128, -127, -1, 1, 127}) {
                Eight eight = {};
                for (size_t j = 0; j < 8; ++j) {
                    eight.code[j] = static_cast<int>(random.below(static_cast<uint32_t>(n_codes)));
                    eight.x[j] = static_cast<int>(random.below(256)) - 128;
                }
                eight.code[place] = code;
                eight.x[place] = x;
                check(eight);
            }
        }
    }
}

template <class Values>
std::array<int, 2> dots_of_values(const Values& values, const Eight& eight) {
    std::array<int, 2> dot = {};
    for (size_t j = 0; j < 8; ++j) dot[j / 4] += values.data[static_cast<size_t>(eight.code[j])] * eight.x[j];
    return dot;
}

// `values` may have twice as many: the shifted ones follow.
template <int n, const auto& values>
void check_tables() {
    for_each_code(8 * n, [](const Eight& eight) {
        EightCodes codes = eight.words();
        // Only the top bits of the nibbles count.
        codes.further[0] |= 0x12345670U & 0x77777777U;
        codes.further[1] |= 0x76543210U & 0x77777777U;
        uint32_t first = 5;
        uint32_t second = 7;
        add_dots_of_tables(split_tables<n, values>(), codes, {eight.inputs(0), eight.inputs(1)}, first,
                           second);
        const std::array<int, 2> expected = dots_of_values(values, eight);
        CHECK(static_cast<int32_t>(first) == expected[0] + 5);
        CHECK(static_cast<int32_t>(second) == expected[1] + 7);
    });
}

// Returns whether the panel's word has each bit of the file's words in one place.
bool is_permutation(WordOrder order, uint32_t n_words) {
    std::set<std::pair<uint32_t, uint32_t>> places;
    for (uint32_t word = 0; word < n_words; ++word) {
        for (uint32_t bit = 0; bit < 32; ++bit) {
            const BitPlace from = source_of(order, word, bit);
            if (from.word >= n_words || from.bit >= 32) return false;
            places.insert({from.word, from.bit});
        }
    }
    return places.size() == size_t{32} * n_words;
}

constexpr Table<int8_t, 16> k_positive_later = {{-9, -8, -7, -6, -5, -4, -3, 1, 2, 3, 4, 5, 6, 7, 8, 9}};
constexpr Table<int8_t, 16> k_too_large = {{-9, -8, -7, -6, -5, -4, -3, -2, 2, 3, 4, 5, 6, 7, 8, 127}};
constexpr Table<int8_t, 32> k_loses_sign = {{-20, -19, -18, -17, -16, -15, -14, -13, -12, -11, -10,
                                             -9,  -8,  -7,  -6,  -1,  1,   2,   3,   4,   5,   6,
                                             7,   8,   9,   10,  11,  12,  13,  14,  15,  16}};

}  // namespace

TEST_CASE("dots by tables: equal to those of the values, for every code and sign") {
    check_tables<2, codebooks::k_iq4nl>();
    check_tables<2, codebooks::k_iq4k>();
    check_tables<4, codebooks::k_iq5k>();
    check_tables<8, codebooks::k_iq6k>();
}

TEST_CASE("dots by tables: magnitudes with signs apart") {
    constexpr auto k_tables = split_tables<1, codebooks::k_e2m1_doubled>();
    for_each_code(16, [&](const Eight& eight) {
        const EightCodes codes = eight.words();
        const uint32_t x[2] = {eight.inputs(0), eight.inputs(1)};
        uint32_t plus[2] = {};
        uint32_t minus[2] = {};
        add_dots_of_table(k_tables.word[0], codes.nibbles, x, plus[0], plus[1]);
        add_dots_of_table(k_tables.word[0], codes.nibbles ^ k_nibble_tops, x, minus[0], minus[1]);
        const std::array<int, 2> expected = dots_of_values(codebooks::k_e2m1_doubled, eight);
        for (size_t half = 0; half < 2; ++half)
            CHECK(static_cast<int32_t>(plus[half] - minus[half]) == expected[half]);
    });
}

TEST_CASE("dots by tables: values whose entries would lose their sign or overflow are not split") {
    CHECK(can_split<2>(codebooks::k_iq4nl));
    CHECK_FALSE(can_split<2>(k_positive_later));  // no table is negative throughout
    CHECK_FALSE(can_split<2>(k_too_large));
    CHECK_FALSE(can_split<4>(k_loses_sign));
}

TEST_CASE(
    "dots by tables: codes of units are packed without loss, and a shift puts further bits beside their "
    "nibbles") {
    CHECK(is_permutation(WordOrder::units_of_5, 40));
    CHECK(is_permutation(WordOrder::units_of_6, 48));
    for (uint32_t unit = 0; unit < 8; ++unit) {
        for (uint32_t column = 0; column < 32; ++column) {
            const uint32_t word = column / 4 % 4;
            const uint32_t nibble = column % 4 + 4 * (column / 16);
            // In the file, byte 32 (unit / 2) + column of the codes, and bit `unit` of byte `column` after them.
            const BitPlace low = source_of(WordOrder::units_of_5, 4 * unit + word, 4 * nibble);
            CHECK((low.word == 8 * (unit / 2) + column / 4 && low.bit == 8 * (column % 4) + 4 * (unit % 2)));
            const BitPlace fifth = source_of(WordOrder::units_of_5, 32 + unit, 4 * nibble + word);
            CHECK((fifth.word == 32 + column / 4 && fifth.bit == 8 * (column % 4) + unit));
        }
    }
}

TEST_CASE("dots by tables: kernels of one row compute them if the path is on, those of several rows do not") {
    // Returns the kernels by tables of products of n rows and of slots of n rows.
    const auto kernels_of = [](const char* paths, Format format, int64_t n) {
        const SetLaunchPaths set(paths);
        Fixture f(backend::Arithmetic::fast);
        Random random(17);
        const backend::Matrix weight = f.put_packed(TestMatrix(format, 256, 256, random));
        backend::ExpertStack stack;
        for (int e = 0; e < 2; ++e) add_expert(stack, weight, 1.0F);
        const backend::ExpertWeights experts = f.with_table({stack, stack, stack});
        const float* x = f.put(random.normal(n * 256));
        const backend::Vector norm = {f.put(random.normal(256)), 256};
        float* h = f.put(std::vector<float>(static_cast<size_t>(n * 256)));
        float* y = f.put(std::vector<float>(static_cast<size_t>(n * 256)));
        const int32_t* ids = f.put(std::vector<int32_t>(static_cast<size_t>(n)));
        const float* gates = f.put(std::vector<float>(static_cast<size_t>(n), 1.0F));
        const backend::LinearTask task = {&weight, y, false};
        const int64_t before = kernels_by_tables();
        f.device->linear(*f.stream, x, n, {&task, 1});
        f.device->norm(*f.stream, x, n, norm, 1e-6F, h);
        f.device->linear(*f.stream, h, n, {&task, 1});
        const int64_t of_products = kernels_by_tables() - before;
        f.device->experts(*f.stream, x, n, ids, gates, 1, experts, y, false);
        f.device->synchronize(*f.stream);
        return std::pair(of_products, kernels_by_tables() - before - of_products);
    };
    CHECK(kernels_of("two-tables", Format::iq4_xs, 1) == std::pair<int64_t, int64_t>(2, 2));
    CHECK(kernels_of("two-tables", Format::iq5_k, 1) == std::pair<int64_t, int64_t>(2, 2));
    CHECK(kernels_of("two-tables", Format::iq4_xs, 3) == std::pair<int64_t, int64_t>(0, 2));  // slot by slot
    CHECK(kernels_of("two-tables", Format::iq4_xs, 33) == std::pair<int64_t, int64_t>(0, 0));
    CHECK(kernels_of("two-tables", Format::q4_k, 1) == std::pair<int64_t, int64_t>(0, 0));
    CHECK(kernels_of("", Format::iq4_xs, 1) == std::pair<int64_t, int64_t>(0, 0));
}

}  // namespace minim::test
