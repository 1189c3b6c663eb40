// SPDX-License-Identifier: Apache-2.0
// Kernels with faults that a GPU shows only now and then. For each fault one emulation shows it every time. The same
// kernels without the fault are right in every emulation.
#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "cuda/fast/last_block.h"
#include "gpu/emulated_thread.h"
#include "support/catch.h"

namespace minim::test {
namespace {

namespace fast = cuda::fast;

constexpr uint32_t k_seeds = 40;

// Sums numbers that go through a ring of two stages; a thread reads what other threads have copied.
template <bool copies_too_soon>
struct RingKernel {
    static constexpr int k_threads = 64;
    static constexpr int k_stages = 7;
    const int32_t* from;
    int32_t* to;

    template <class T>
    void operator()(T& t) const {
        auto* ring = reinterpret_cast<int32_t*>(t.shared());
        const auto start = [&](int stage) {
            if (stage < k_stages)
                t.copy_4(ring + stage % 2 * k_threads + t.index(), from + stage * k_threads + t.index());
            t.copies_end_group();
        };
        start(0);
        int32_t sum = 0;
        for (int stage = 0; stage < k_stages; ++stage) {
            if (copies_too_soon) start(stage + 1);  // others may still read the stage before
            t.template copies_wait<copies_too_soon ? 1 : 0>();
            t.sync();
            if (!copies_too_soon) start(stage + 1);
            sum += ring[stage % 2 * k_threads + (t.index() + 31) % k_threads];
        }
        to[t.index()] = sum;
    }
};

template <bool copies_too_soon>
bool ring_is_right(const Emulation& how) {
    using Kernel = RingKernel<copies_too_soon>;
    std::vector<int32_t> from(Kernel::k_stages * Kernel::k_threads);
    for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<int32_t>(i * i);
    std::vector<int32_t> to(Kernel::k_threads);
    const Emulating mode(how);
    fast::launch(nullptr, {.n_blocks = 1, .shared_bytes = 2 * Kernel::k_threads * 4},
                 Kernel{from.data(), to.data()});
    for (size_t i = 0; i < to.size(); ++i) {
        int32_t sum = 0;
        for (size_t stage = 0; stage < Kernel::k_stages; ++stage) sum += from[stage * 64 + (i + 31) % 64];
        if (to[i] != sum) return false;
    }
    return true;
}

enum class Arrival { right, without_barrier, not_at_once, in_order };

// The last block adds up what all blocks have written.
template <Arrival arrival>
struct SumKernel {
    static constexpr int k_threads = 64;
    int32_t n_blocks;
    int32_t* number;  // [n_blocks, k_threads]
    int32_t* arrived;
    int32_t* sum;  // [k_threads]

    template <class T>
    void operator()(T& t) const {
        number[t.block() * k_threads + t.index()] = 100 * t.block() + t.index();
        auto* is_last = reinterpret_cast<int32_t*>(t.shared());
        if (!gets_there_last(t, is_last)) return;
        int32_t all = 0;
        for (int b = 0; b < n_blocks; ++b) all += number[b * k_threads + (t.index() + 31) % k_threads];
        sum[t.index()] = all;
    }

  private:
    template <class T>
    bool gets_there_last(T& t, int32_t* is_last) const {
        if constexpr (arrival == Arrival::right) return fast::is_last_block(t, arrived, n_blocks, is_last);
        if constexpr (arrival == Arrival::in_order) {
            t.sync();
            return t.block() == n_blocks - 1;
        }
        if constexpr (arrival == Arrival::not_at_once) t.sync();
        if (t.index() == 0) {
            t.fence();
            int32_t before;
            if constexpr (arrival == Arrival::not_at_once) {
                before = t.load_fresh(arrived);
                *arrived = before + 1;
            } else {
                before = t.add_to(arrived, 1);
            }
            *is_last = before == n_blocks - 1 ? 1 : 0;
            if (*is_last != 0) *arrived = 0;
        }
        t.sync();
        return *is_last != 0;
    }
};

template <Arrival arrival>
bool sum_is_right(const Emulation& how) {
    using Kernel = SumKernel<arrival>;
    constexpr int k_blocks = 6;
    std::vector<int32_t> number(k_blocks * Kernel::k_threads, -1);
    std::vector<int32_t> sum(Kernel::k_threads, -1);
    int32_t arrived = 0;
    const Emulating mode(how);
    fast::launch(nullptr, {.n_blocks = k_blocks, .shared_bytes = 4},
                 Kernel{k_blocks, number.data(), &arrived, sum.data()});
    for (int i = 0; i < Kernel::k_threads; ++i)
        if (sum[static_cast<size_t>(i)] != 1500 + 6 * ((i + 31) % 64)) return false;
    return arrived == 0;
}

template <Arrival arrival>
int64_t wrong_sums() {
    int64_t count = 0;
    for (uint32_t seed = 1; seed <= k_seeds; ++seed)
        for (const bool backwards : {false, true})
            if (!sum_is_right<arrival>({.backwards = backwards, .seed = seed})) ++count;
    return count;
}

// Returns the error that a block of this many threads throws; empty if it does not throw.
template <typename Body>
std::string error_of_block(int n_threads, const Body& body, const Emulation& how = {}) {
    try {
        emulate({.n_blocks = 1}, n_threads, how, body);
    } catch (const std::logic_error& error) {
        return error.what();
    }
    return "";
}

bool contains(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

template <int>
void sync_of_unit(EmulatedThread& t) {
    t.sync();
}

enum class Does { waits, reads_before, copies_before, writes_before, holds_next };

template <Does does>
struct Stored {};
template <>
struct Stored<Does::holds_next> {
    static constexpr bool k_holds_next = true;
};

// Adds one to the numbers of `from`.
template <Does does>
struct NextKernel : Stored<does> {
    static constexpr int k_threads = 32;
    static constexpr bool k_starts_early = true;
    const float* from;  // [n_blocks, k_threads]
    float* to;

    NextKernel(const float* from_, float* to_) : from(from_), to(to_) {}

    template <class T>
    void operator()(T& t) const {
        const int i = t.block() * k_threads + t.index();
        float x = NAN;
        if constexpr (does == Does::reads_before) x = from[i];
        auto* copied = reinterpret_cast<float*>(t.shared());
        if constexpr (does == Does::copies_before) t.copy_4(copied + t.index(), from + i);
        if constexpr (does == Does::writes_before) to[i] = 0.0F;
        t.wait_for_inputs();
        if constexpr (does == Does::holds_next) t.let_next_begin();
        if constexpr (does == Does::copies_before) {
            t.copies_end_group();
            t.template copies_wait<0>();
            x = copied[t.index()];
        } else if constexpr (does != Does::reads_before) {
            x = from[i];
        }
        to[i] = x + 1.0F;
    }
};

using Numbers = std::array<float, 3 * 32>;

template <Does does>
void start_next(const Numbers& from, Numbers& to) {
    fast::launch(nullptr, {.n_blocks = 3, .shared_bytes = 32 * 4}, NextKernel<does>{from.data(), to.data()});
}

bool are_all(const Numbers& numbers, float x) {
    return std::ranges::all_of(numbers, [&](float number) { return number == x; });
}

Numbers all(float x) {
    Numbers numbers;
    numbers.fill(x);
    return numbers;
}

// Runs a kernel after one that writes its inputs. Returns whether the results are right.
template <Does does>
bool next_is_right(const Emulation& how) {
    const Emulating mode(how);
    Numbers a = all(1.0F);
    Numbers b = all(NAN);
    Numbers c = all(NAN);
    start_next<Does::waits>(a, b);
    start_next<does>(b, c);
    finish_kernels();
    return are_all(b, 2.0F) && are_all(c, 3.0F);
}

// Runs a kernel after one that reads what this kernel overwrites. Returns whether the results are right.
template <Does does>
bool writes_late(const Emulation& how) {
    const Emulating mode(how);
    Numbers a = all(1.0F);
    Numbers b = all(5.0F);
    Numbers c = all(NAN);
    start_next<Does::waits>(b, c);
    start_next<does>(a, b);
    finish_kernels();
    return are_all(b, 2.0F) && are_all(c, 6.0F);
}

// Runs a kernel that reads the output of the last kernel but one before it waits. Returns whether it reads the right
// numbers.
template <Does between>
bool last_but_one_is_seen() {
    const Emulating mode({.starts_early = true});
    Numbers a = all(1.0F);
    Numbers b = all(NAN);
    Numbers x = all(1.0F);
    Numbers y = all(NAN);
    Numbers c = all(NAN);
    start_next<Does::waits>(a, b);
    start_next<between>(x, y);
    start_next<Does::reads_before>(b, c);
    finish_kernels();
    return are_all(c, 3.0F);
}

}  // namespace

TEST_CASE("emulated faults: a copy over what others still read") {
    for (const bool backwards : {false, true}) {
        CHECK(ring_is_right<false>({.backwards = backwards}));
        CHECK(ring_is_right<false>({.backwards = backwards, .copies_at_once = true}));
        CHECK(ring_is_right<true>({.backwards = backwards}));
        CHECK_FALSE(ring_is_right<true>({.backwards = backwards, .copies_at_once = true}));
    }
}

TEST_CASE("emulated faults: blocks that take another for done, or for the one before") {
    CHECK(sum_is_right<Arrival::right>({}));
    CHECK(sum_is_right<Arrival::without_barrier>({}));
    CHECK(sum_is_right<Arrival::not_at_once>({}));
    CHECK(sum_is_right<Arrival::in_order>({}));
    CHECK(wrong_sums<Arrival::right>() == 0);
    CHECK(wrong_sums<Arrival::without_barrier>() > 0);
    CHECK(wrong_sums<Arrival::not_at_once>() > 0);
    CHECK(wrong_sums<Arrival::in_order>() > 0);
}

TEST_CASE("emulated threads: every block of a grid runs once, in memory of its own, whatever the order") {
    for (const uint32_t seed : {0U, 1U, 2U, 3U}) {
        std::vector<int> sums(15);
        std::vector<int> order;
        emulate({.n_blocks = 5, .n_blocks_y = 3, .shared_bytes = 64 * 4}, 64, {.seed = seed},
                [&](EmulatedThread& t) {
                    auto* numbers = reinterpret_cast<int*>(t.shared());
                    CHECK(numbers[t.index()] == -1);
                    t.sync();
                    const int block = t.block() + 5 * t.block_y();
                    numbers[t.index()] = t.index() + block;
                    for (int half = 32; half > 0; half /= 2) {
                        t.sync();
                        t.fence();
                        if (t.index() < half) numbers[t.index()] += numbers[t.index() + half];
                    }
                    if (t.index() != 0) return;
                    sums[static_cast<size_t>(block)] += numbers[0];
                    order.push_back(block);
                });
        for (int i = 0; i < 15; ++i) CHECK(sums[static_cast<size_t>(i)] == 64 * 63 / 2 + 64 * i);
        CHECK(std::ranges::is_sorted(order) == (seed == 0));
    }
}

TEST_CASE("emulated faults: a block's barrier at several places of the program") {
    const std::string places = error_of_block(64, [](EmulatedThread& t) {
        if (t.index() < 32) {
            t.sync();
        } else {
            t.sync();
        }
    });
    CHECK(contains(places, "came to its barrier in line"));
    const std::string units = error_of_block(64, [](EmulatedThread& t) {
        if (t.index() < 32) {
            sync_of_unit<1>(t);
        } else {
            sync_of_unit<2>(t);
        }
    });
    CHECK(contains(units, "came to its barrier in"));
    CHECK(contains(units, "= 1]"));
    CHECK(contains(units, "= 2]"));
    CHECK(error_of_block(64, [](EmulatedThread& t) {
              for (int i = 0; i < 3; ++i) sync_of_unit<1>(t);
              sync_of_unit<2>(t);
          }).empty());
}

TEST_CASE("emulated faults: a piece that is written twice, by two threads or because a turn repeats") {
    using cuda::fast::Piece;
    using cuda::fast::Scope;
    Piece board[64] = {};
    const auto put = [&](uint32_t turn, int n_threads, int n_pieces) {
        return error_of_block(64, [&, turn](EmulatedThread& t) {
            t.wait_for_inputs();
            if (t.index() < n_threads)
                t.put<Scope::device>(board + t.index() % n_pieces, {1, 2, static_cast<uint32_t>(t.index())},
                                     turn);
        });
    };
    CHECK(put(1, 64, 64).empty());
    CHECK(put(2, 64, 64).empty());
    CHECK(contains(put(2, 64, 64), "a piece is written twice in turn 2"));
    CHECK(contains(put(3, 2, 1), "a piece is written twice in turn 3"));
    CHECK(contains(put(0, 1, 1), "a piece of turn 0"));
    CHECK(contains(error_of_block(32,
                                  [&](EmulatedThread& t) {
                                      if (t.index() == 0) t.put<Scope::device>(board, {0, 0, 0}, 9);
                                      t.wait_for_inputs();
                                  }),
                   "puts a piece before it has waited for its inputs"));
}

TEST_CASE(
    "emulated threads: pieces are waited for in any order, and threads that wait for each other are named") {
    using cuda::fast::Piece;
    using cuda::fast::Scope;
    for (const bool backwards : {false, true}) {
        // Each thread hands on what it gets from the one before, at the end of a chain through both warps.
        Piece board[64] = {};
        std::vector<uint32_t> sums(64);
        const auto chain = [&](uint32_t first) {
            return error_of_block(64,
                                  [&, first](EmulatedThread& t) {
                                      t.wait_for_inputs();
                                      uint32_t words[3] = {first, 0, 0};
                                      if (t.index() > 0)
                                          while (!t.get<Scope::device>(board + t.index() - 1, 4, words)) {
                                          }
                                      sums[static_cast<size_t>(t.index())] = words[0];
                                      if (t.index() == 40 && first == 0) return;  // breaks the chain
                                      t.put<Scope::device>(board + t.index(), {words[0] + 1, 0, 0}, 4);
                                  },
                                  {.backwards = backwards});
        };
        CHECK(chain(7).empty());
        CHECK(sums[63] == 7 + 63);
        std::ranges::fill(board, Piece{});
        const std::string stuck = chain(0);
        CHECK(contains(stuck, "wait for each other, and for others in line"));
        CHECK(sums[40] == 40);
    }
}

TEST_CASE("emulated threads: a named barrier holds as many threads as it says, wherever they come to it") {
    std::array<int, 64> seen = {};
    CHECK(error_of_block(64, [&](EmulatedThread& t) {
              auto& count = *reinterpret_cast<int*>(t.shared());
              if (t.index() == 0) count = 0;
              t.sync();
              count += t.index();
              if (t.index() < 32) {
                  t.sync_stages<64>();
              } else {
                  t.sync_stages<64>();
              }
              seen[static_cast<size_t>(t.index())] = count;
          }).empty());
    CHECK(std::ranges::all_of(seen, [](int count) { return count == 63 * 32; }));
    CHECK(error_of_block(64, [](EmulatedThread& t) {
              if (t.index() >= 32) t.sync_stages<32>();
          }).empty());
    CHECK(contains(error_of_block(64,
                                  [](EmulatedThread& t) {
                                      if (t.index() >= 32) t.sync_stages<64>();
                                  }),
                   "wait for each other"));
    CHECK(contains(error_of_block(64,
                                  [](EmulatedThread& t) {
                                      if (t.index() < 32) {
                                          t.sync_stages<64>();
                                      } else {
                                          t.sync_stages<32>();
                                      }
                                  }),
                   "at a barrier of"));
    CHECK(contains(error_of_block(64, [](EmulatedThread& t) { t.sync_stages<96>(); }), "at a barrier of"));
}

TEST_CASE("emulated faults: a kernel that starts early and does not wait for what it reads or writes") {
    for (const Emulation& how :
         {Emulation{.starts_early = true}, Emulation{.backwards = true, .starts_early = true},
          Emulation{.copies_at_once = true, .starts_early = true, .seed = 7}}) {
        CHECK(next_is_right<Does::waits>(how));
        CHECK(next_is_right<Does::holds_next>(how));
        CHECK(writes_late<Does::waits>(how));
        CHECK_FALSE(next_is_right<Does::reads_before>(how));
        CHECK_FALSE(next_is_right<Does::copies_before>(how));
        CHECK_FALSE(writes_late<Does::writes_before>(how));
    }
    CHECK(next_is_right<Does::reads_before>({}));
    CHECK(next_is_right<Does::copies_before>({}));
    CHECK(writes_late<Does::writes_before>({}));
}

TEST_CASE("emulated faults: a kernel that starts early before the last but one is done") {
    CHECK_FALSE(last_but_one_is_seen<Does::waits>());
    CHECK(last_but_one_is_seen<Does::holds_next>());
}

}  // namespace minim::test
