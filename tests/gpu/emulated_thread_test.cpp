// SPDX-License-Identifier: Apache-2.0
// Tests the emulated threads themselves, on which the tests of the kernels rely.
#include "gpu/emulated_thread.h"

#include <array>
#include <cstring>

#include "base/half.h"
#include "support/catch.h"
#include "unit/cpu/support.h"

namespace minim::test {
namespace {

struct EarlyKernel {
    static constexpr int k_threads = 32;
    static constexpr bool k_starts_early = true;
    bool waits;
    template <class T>
    void operator()(T& t) const {
        if (waits || t.index() != 5) t.wait_for_inputs();
    }
};

template <typename Body>
void run_block(int n_threads, int64_t shared_bytes, bool backwards, const Body& body) {
    emulate({.n_blocks = 1, .shared_bytes = shared_bytes}, n_threads, {.backwards = backwards}, body);
}

}  // namespace

TEST_CASE("emulated threads: barriers, shared memory and blocks") {
    for (const bool backwards : {false, true}) {
        std::vector<int> sums(6);
        emulate({.n_blocks = 3, .n_blocks_y = 2, .shared_bytes = 64 * 4}, 64, {.backwards = backwards},
                [&](EmulatedThread& t) {
                    auto* numbers = reinterpret_cast<int*>(t.shared());
                    numbers[t.index()] = t.index() + t.block() + 10 * t.block_y();
                    t.sync();
                    for (int half = 32; half > 0; half /= 2) {
                        if (t.index() < half) numbers[t.index()] += numbers[t.index() + half];
                        t.sync();
                    }
                    if (t.index() == 0) sums[static_cast<size_t>(t.block() + 3 * t.block_y())] = numbers[0];
                });
        for (int i = 0; i < 6; ++i)
            CHECK(sums[static_cast<size_t>(i)] == 64 * 63 / 2 + 64 * (i % 3 + 10 * (i / 3)));
    }
}

TEST_CASE("emulated threads: what lacks a barrier depends on the order") {
    std::array<int, 2> seen = {};
    for (const bool backwards : {false, true}) {
        run_block(64, 4, backwards, [&](EmulatedThread& t) {
            auto* number = reinterpret_cast<int*>(t.shared());
            if (t.index() == 5) *number = 7;
            if (t.index() == 40) seen[backwards ? 1 : 0] = *number;
        });
    }
    CHECK(seen[0] == 7);
    CHECK(seen[1] == -1);
    CHECK_THROWS_AS(run_block(64, 0, false,
                              [](EmulatedThread& t) {
                                  if (t.index() < 32) t.sync();
                              }),
                    std::logic_error);
}

TEST_CASE("emulated threads: a kernel that starts early has to wait in every thread") {
    cuda::fast::launch(nullptr, {.n_blocks = 2}, EarlyKernel{true});
    CHECK_THROWS_AS(cuda::fast::launch(nullptr, {.n_blocks = 2}, EarlyKernel{false}), std::logic_error);
    const Emulating how({.starts_early = true});
    cuda::fast::launch(nullptr, {.n_blocks = 2}, EarlyKernel{true});
    CHECK_THROWS_AS(cuda::fast::launch(nullptr, {.n_blocks = 2}, EarlyKernel{false}), std::logic_error);
    finish_kernels();
}

TEST_CASE("emulated threads: lanes exchange, copies arrive when they are waited for") {
    run_block(64, 0, false, [](EmulatedThread& t) {
        for (const int mask : {1, 16, 31}) CHECK(t.from_lane_xor(t.index(), mask) == (t.index() ^ mask));
        CHECK(t.from_lane_xor(0.5F * static_cast<float>(t.index()), 2) ==
              0.5F * static_cast<float>(t.index() ^ 2));
        CHECK(t.from_lane(0.5F * static_cast<float>(t.index()), 9) == (t.index() < 32 ? 4.5F : 20.5F));
        const auto in_turn = static_cast<uint32_t>(t.index() * 7 % 64);
        CHECK(t.largest_of_lanes(in_turn) == (t.index() < 32 ? 63U : 60U));
    });
    alignas(16) std::array<uint32_t, 8> from = {1, 2, 3, 4, 5, 6, 7, 8};
    run_block(32, 32, false, [&](EmulatedThread& t) {
        auto* to = reinterpret_cast<uint32_t*>(t.shared());
        if (t.index() == 0) t.copy_16(to, from.data());
        t.copies_end_group();
        if (t.index() < 4) t.copy_4(to + 4 + t.index(), from.data() + 4 + t.index());
        t.copies_end_group();
        t.copies_wait<1>();
        if (t.index() == 0) CHECK((to[0] == 1 && to[3] == 4 && to[4] == UINT32_MAX));
        t.sync();
        t.copies_wait<0>();
        t.sync();
        CHECK(std::memcmp(to, from.data(), sizeof(from)) == 0);
    });
}

TEST_CASE("emulated threads: matrix products and loads") {
    Random random(1);
    std::array<int8_t, 16 * 32> a = {};
    std::array<int8_t, 32 * 8> b = {};
    for (int8_t& x : a) x = static_cast<int8_t>(static_cast<int>(random.below(255)) - 127);
    for (int8_t& x : b) x = static_cast<int8_t>(static_cast<int>(random.below(255)) - 127);
    run_block(32, 0, true, [&](EmulatedThread& t) {
        const int g = t.index() / 4;
        const int k = t.index() % 4 * 4;
        const auto four = [](auto at) {
            uint32_t word = 0;
            for (int i = 0; i < 4; ++i) word |= static_cast<uint32_t>(static_cast<uint8_t>(at(i))) << (8 * i);
            return word;
        };
        const auto of_a = [&](int row, int first) {
            return four([&](int i) { return a[static_cast<size_t>(32 * row + first + i)]; });
        };
        const auto of_b = [&](int first) {
            return four([&](int i) { return b[static_cast<size_t>(8 * (first + i) + g)]; });
        };
        const uint32_t fragment_a[4] = {of_a(g, k), of_a(g + 8, k), of_a(g, k + 16), of_a(g + 8, k + 16)};
        const uint32_t fragment_b[2] = {of_b(k), of_b(k + 16)};
        int32_t c[4] = {1, 2, 3, 4};
        t.mma_s8(c, fragment_a, fragment_b);
        for (int i = 0; i < 4; ++i) {
            const int row = g + 8 * (i / 2);
            const int column = t.index() % 4 * 2 + i % 2;
            int32_t sum = i + 1;
            for (int j = 0; j < 32; ++j)
                sum += a[static_cast<size_t>(32 * row + j)] * b[static_cast<size_t>(8 * j + column)];
            CHECK(c[i] == sum);
        }
    });
    // Scores of 16 queries and 8 keys, whose rows lie in shared memory as they are.
    run_block(32, 2 * 16 * 16 * 2, false, [&](EmulatedThread& t) {
        auto* q = reinterpret_cast<uint16_t*>(t.shared());
        uint16_t* k = q + 256;
        for (int i = t.index(); i < 256; i += 32) {
            q[i] = float_to_f16(static_cast<float>(i % 7) - 3.0F);
            k[i] = float_to_f16(static_cast<float>(i % 5) - 2.0F);
        }
        t.sync_warp();
        uint32_t fragment_a[4];
        uint32_t both_b[4];
        const int lane = t.index();
        t.load_matrices(fragment_a, q + 16 * (lane % 16) + 8 * (lane / 16));
        t.load_matrices(both_b, k + 16 * (lane % 8 + lane / 16 * 8) + lane / 8 % 2 * 8);
        const uint32_t fragment_b[2] = {both_b[0], both_b[1]};
        float c[4] = {};
        t.mma_f16(c, fragment_a, fragment_b);
        for (int i = 0; i < 4; ++i) {
            const int row = lane / 4 + 8 * (i / 2);
            const int column = lane % 4 * 2 + i % 2;
            float sum = 0.0F;
            for (int j = 0; j < 16; ++j)
                sum += f16_to_float(q[16 * row + j]) * f16_to_float(k[16 * column + j]);
            CHECK(c[i] == sum);
        }
        const uint32_t twos[4] = {0x40004000, 0x40004000, 0x40004000, 0x40004000};  // as BF16
        const uint32_t halves_of_one[2] = {0x3F003F00, 0x3F003F00};
        float ones[4] = {1.0F, 2.0F, 3.0F, 4.0F};
        t.mma_bf16(ones, twos, halves_of_one);
        for (int i = 0; i < 4; ++i) CHECK(ones[i] == static_cast<float>(17 + i));
        uint32_t transposed[4];
        t.load_transposed(transposed, k + 16 * (lane % 16) + 8 * (lane / 16));
        CHECK((transposed[0] & 0xFFFF) == k[16 * (lane % 4 * 2) + lane / 4]);
        CHECK(transposed[1] >> 16 == k[16 * (lane % 4 * 2 + 9) + lane / 4]);
        CHECK((transposed[2] & 0xFFFF) == k[16 * (lane % 4 * 2) + lane / 4 + 8]);
    });
}

TEST_CASE("emulated threads: halves are subtracted, multiplied, and multiplied and added with one rounding") {
    run_block(32, 0, false, [](EmulatedThread& t) {
        const uint32_t two = t.pack_f16(3.0F, -0.5F);
        const uint32_t other = t.pack_f16(0.25F, 8.0F);
        CHECK(t.subtract_f16(two, other) == t.pack_f16(2.75F, -8.5F));
        CHECK(t.multiply_f16(two, other) == t.pack_f16(0.75F, -4.0F));
        CHECK(t.fma_f16(two, other, t.pack_f16(1.0F, 4.0F)) == t.pack_f16(1.75F, 0.0F));
        // (1 + 2^-10)^2 - 1 = 2^-9 + 2^-20, of which the rounded product has lost the last part.
        const uint32_t above_one = t.pack_f16(1.0F + 0x1p-10F, 1.0F);
        CHECK(t.fma_f16(above_one, above_one, t.pack_f16(-1.0F, 0.0F)) ==
              t.pack_f16(0x1p-9F + 0x1p-20F, 1.0F));
    });
}

TEST_CASE("emulated threads: rows of inputs in blocks of 8 x 8, for 1 to 128 inputs") {
    constexpr int k_inputs = 128;
    constexpr int k_cols = 32;  // two steps
    const auto weight = [](int panel, int row, int column) {
        return static_cast<float>((5 * panel + 3 * row + 7 * column) % 11 - 5);
    };
    const auto input = [](int i, int column) { return static_cast<float>((2 * i + 5 * column) % 13 - 6); };
    // Columns 8 c .. 8 c + 7 of input i lie at (c x 16 + i / 8) x 128 + (i % 8) x 16.
    CHECK(cuda::fast::row_place<k_inputs>(0, 0) == 0);
    CHECK(cuda::fast::row_place<k_inputs>(21, 24) == (3 * 16 + 2) * 128 + 5 * 16);
    CHECK(cuda::fast::row_place<64>(21, 24) == (3 * 8 + 2) * 128 + 5 * 16);
    for (const int count : {1, 16, 17, 100, 128}) {
        run_block(32, k_inputs * k_cols * 2, false, [&](EmulatedThread& t) {
            // Inputs that are not multiplied stay NaN, as shared memory begins.
            const int n_read = (count + 15) / 16 * 16;
            for (int i = t.index(); i < n_read; i += 32) {
                for (int c = 0; c < k_cols; ++c) {
                    const uint16_t half = float_to_f16(input(i, c));
                    std::memcpy(t.shared() + cuda::fast::row_place<k_inputs>(i, c / 8 * 8) + c % 8 * 2, &half,
                                2);
                }
            }
            t.sync_warp();
            const int g = t.index() / 4;
            const int q = t.index() % 4;
            uint32_t a[2][2][4];
            float sum[2][k_inputs / 8][4];
            for (int p = 0; p < 2; ++p) {
                for (int k = 0; k < 2; ++k) {
                    for (int i = 0; i < 4; ++i) {
                        const int row = g + i % 2 * 8;
                        const int column = 16 * k + 2 * q + i / 2 * 8;
                        a[p][k][i] = t.pack_f16(weight(p, row, column), weight(p, row, column + 1));
                    }
                }
                for (auto& eight : sum[p])
                    for (float& each : eight) each = 0.5F;
            }
            t.multiply_rows<k_inputs>(sum, a, t.shared(), count);
            for (int p = 0; p < 2; ++p) {
                for (int i = 0; i < k_inputs / 2; ++i) {
                    const int row = g + i % 4 / 2 * 8;
                    const int of_input = i / 4 * 8 + 2 * q + i % 2;
                    float expected = 0.5F;
                    if (of_input < n_read) {
                        for (int c = 0; c < k_cols; ++c) expected += weight(p, row, c) * input(of_input, c);
                    }
                    if (sum[p][i / 4][i % 4] != expected) FAIL(count << ", " << of_input << ", " << row);
                }
            }
        });
    }
}

}  // namespace minim::test
