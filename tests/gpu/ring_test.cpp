// SPDX-License-Identifier: Apache-2.0
// Weights through a ring of slots (cuda/fast/ring.h), and blocks that wait for each other's pieces, on emulated threads: in every order of
// threads, blocks and copies; and the faults that a GPU shows only now and then.
#include "cuda/fast/ring.h"

#include <algorithm>
#include <string>
#include <vector>

#include "cuda/fast/piece.h"
#include "gpu/emulated_thread.h"
#include "support/catch.h"

namespace minim::test {
namespace {

namespace fast = cuda::fast;

constexpr Emulation k_ring_emulations[] = {{},
                                           {.backwards = true},
                                           {.copies_at_once = true},
                                           {.backwards = true, .copies_at_once = true},
                                           {.seed = 1},
                                           {.seed = 2},
                                           {.copies_at_once = true, .seed = 3},
                                           {.backwards = true, .seed = 4}};

enum class RingFault { none, early_release, consumer_too_few, too_many_bytes, copy_not_awaited };

constexpr int k_weight_bytes = 18432;
constexpr int k_header_bytes = 32;  // of a panel

// Items of pairs of panels, header before units: each consumer warp sums the words of every k_consumers-th group of both panels, and of
// the headers of each slot.
struct RingReading {
    static constexpr int k_consumers = 4;
    static constexpr int k_threads = 32 * (k_consumers + 1);
    static constexpr int k_items = 5;
    static constexpr int k_blocks = 3;
    static constexpr int k_slot_bytes = fast::ring_slot_bytes(k_weight_bytes);

    int n_slots;
    int n_groups;
    int group_bytes;  // of one panel

    int panel_bytes() const { return k_header_bytes + n_groups * group_bytes; }
    int64_t shared_bytes() const { return n_slots * (k_slot_bytes + 16); }
    fast::RingShares shares() const {
        return fast::ring_shares(n_groups, k_weight_bytes / (2 * group_bytes));
    }

    template <RingFault fault, class T>
    void run(T& t, const std::byte* weights, uint32_t* sums) const {
        auto* bars = reinterpret_cast<fast::Bar*>(t.shared() + n_slots * k_slot_bytes);
        const fast::Ring ring = {t.shared(), bars, bars + n_slots, n_slots, k_slot_bytes};
        ring.start(t, fault == RingFault::consumer_too_few ? k_consumers - 1 : k_consumers);
        t.sync();
        t.wait_for_inputs();
        if (t.index() == 32 * k_consumers) load<fault>(t, ring, weights);
        if (t.index() < 32 * k_consumers)
            sums[t.block() * 32 * k_consumers + t.index()] = consume<fault>(t, ring);
    }
    template <RingFault fault, class T>
    void load(T& t, const fast::Ring& ring, const std::byte* weights) const {
        fast::RingPosition at;
        for (int item = 0; item < k_items; ++item) {
            const std::byte* panel[2] = {weights + 2 * item * panel_bytes(),
                                         weights + (2 * item + 1) * panel_bytes()};
            for (int s = 0; s < shares().n_slots; ++s, at.next(n_slots)) {
                const int first = k_header_bytes + shares().first_of(s) * group_bytes;
                const fast::PanelPart part[2] = {{panel[0], panel[0] + first}, {panel[1], panel[1] + first}};
                const int bytes = shares().count_of(s) * group_bytes;
                if (fault == RingFault::too_many_bytes) {
                    t.bar_wait(ring.empty + at.slot, (at.round + 1) % 2);
                    t.bar_expect(ring.full + at.slot, bytes);
                    t.copy_bulk(ring.place(at), part[0].units, 2 * bytes, ring.full + at.slot);
                } else {
                    ring.load<k_header_bytes>(t, at, part, bytes);
                }
            }
        }
        if (fault == RingFault::copy_not_awaited) {
            const fast::PanelPart part[2] = {{weights, weights}, {weights, weights}};
            ring.load<k_header_bytes>(t, at, part, 16);
        }
    }
    template <RingFault fault, class T>
    uint32_t consume(T& t, const fast::Ring& ring) const {
        fast::RingPosition at;
        uint32_t sum = 0;
        int running = 0;
        const int lane = t.index() % 32;
        for (int item = 0; item < k_items; ++item) {
            for (int s = 0; s < shares().n_slots; ++s, at.next(n_slots)) {
                const std::byte* slot = ring.wait(t, at);
                const int count = shares().count_of(s);
                if (fault == RingFault::early_release) ring.release(t, at);
                const auto add = [&](const std::byte* from, int bytes) {
                    for (int w = lane; w < bytes / 4; w += 32)
                        sum = 31 * sum + reinterpret_cast<const uint32_t*>(from)[w];
                };
                for (int p = 0; p < 2; ++p) add(slot + p * fast::k_ring_header_bytes, k_header_bytes);
                const std::byte* units = slot + fast::k_ring_first_panel;
                for (int g = 0; g < count; ++g, ++running) {
                    if (running % k_consumers != t.index() / 32) continue;
                    for (const int panel_at : {0, fast::second_panel_at(count * group_bytes)})
                        add(units + panel_at + g * group_bytes, group_bytes);
                }
                if (fault != RingFault::early_release) ring.release(t, at);
            }
        }
        return sum;
    }

    // Returns the sums of a block's threads.
    std::vector<uint32_t> expected(const std::byte* weights) const {
        std::vector<uint32_t> sums;
        for (int index = 0; index < 32 * k_consumers; ++index) {
            uint32_t sum = 0;
            const auto add = [&](int at, int bytes) {
                for (int w = index % 32; w < bytes / 4; w += 32)
                    sum = 31 * sum + reinterpret_cast<const uint32_t*>(weights + at)[w];
            };
            int running = 0;
            for (int item = 0; item < k_items; ++item) {
                for (int s = 0; s < shares().n_slots; ++s) {
                    for (int p = 0; p < 2; ++p) add((2 * item + p) * panel_bytes(), k_header_bytes);
                    for (int g = 0; g < shares().count_of(s); ++g, ++running) {
                        if (running % k_consumers != index / 32) continue;
                        for (int p = 0; p < 2; ++p)
                            add((2 * item + p) * panel_bytes() + k_header_bytes +
                                    (shares().first_of(s) + g) * group_bytes,
                                group_bytes);
                    }
                }
            }
            sums.push_back(sum);
        }
        return sums;
    }
};

// Returns "" if the sums are right, "wrong", or the error.
template <RingFault fault>
std::string read_through_ring(const RingReading& reading, const Emulation& how) {
    const size_t n_words = static_cast<size_t>(2 * RingReading::k_items * reading.panel_bytes() / 4);
    std::vector<fast::SixteenBytes> weights(n_words / 4);
    for (size_t i = 0; i < n_words; ++i) weights[i / 4].word[i % 4] = static_cast<uint32_t>(i * 2654435761U);
    const auto* bytes = reinterpret_cast<const std::byte*>(weights.data());
    std::vector<uint32_t> sums(RingReading::k_blocks * 32 * RingReading::k_consumers);
    try {
        emulate({.n_blocks = RingReading::k_blocks, .shared_bytes = reading.shared_bytes()},
                RingReading::k_threads, how,
                [&](EmulatedThread& t) { reading.run<fault>(t, bytes, sums.data()); });
    } catch (const std::logic_error& error) {
        return error.what();
    }
    const std::vector<uint32_t> of_block = reading.expected(bytes);
    for (size_t i = 0; i < sums.size(); ++i)
        if (sums[i] != of_block[i % of_block.size()]) return "wrong";
    return "";
}

bool has(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("ring: slots have whole groups of both panels, divided evenly") {
    CHECK(fast::second_panel_at(64) == 64);
    CHECK(fast::second_panel_at(80) == 192);
    CHECK(fast::second_panel_at(128) == 192);
    for (int bytes = 16; bytes <= k_weight_bytes / 2; bytes += 16) {
        const int at = fast::second_panel_at(bytes);
        CHECK((at >= bytes && at % 128 == 64));
        CHECK(fast::k_ring_first_panel + at + bytes <= fast::ring_slot_bytes(k_weight_bytes));
    }
    // Bytes of a panel's group and how many fit: IQ2_S, IQ4_XS, Q8_0.
    for (const auto& [bytes, most] : {std::pair(1312, 7), std::pair(2176, 4), std::pair(4352, 2)}) {
        for (int n_groups = 1; n_groups <= 24; ++n_groups) {
            const fast::RingShares shares = fast::ring_shares(n_groups, most);
            CHECK(shares.n_slots == (n_groups + most - 1) / most);
            CHECK(shares.first_of(0) == 0);
            CHECK(shares.first_of(shares.n_slots) == n_groups);
            for (int s = 0; s < shares.n_slots; ++s) {
                CHECK(shares.count_of(s) >= n_groups / shares.n_slots);
                CHECK(shares.count_of(s) <= most);
            }
        }
    }
}

TEST_CASE("ring: weights arrive whole in every order of threads, blocks and copies") {
    for (const RingReading& reading : {RingReading{1, 3, 2176}, RingReading{2, 12, 1312},
                                       RingReading{3, 12, 4352}, RingReading{4, 5, 4352}})
        for (const Emulation& how : k_ring_emulations) {
            INFO(reading.n_slots << " slots, " << reading.n_groups << " groups, seed " << how.seed);
            CHECK(read_through_ring<RingFault::none>(reading, how).empty());
        }
}

TEST_CASE("ring: faults in the use of its barriers are found") {
    const RingReading reading = {2, 12, 2176};
    const auto finds = [&]<RingFault fault>() {
        return std::ranges::count_if(k_ring_emulations, [&](const Emulation& how) {
            return !read_through_ring<fault>(reading, how).empty();
        });
    };
    CHECK(finds.operator()<RingFault::none>() == 0);
    CHECK(finds.operator()<RingFault::early_release>() > 0);
    CHECK(finds.operator()<RingFault::consumer_too_few>() > 0);
    CHECK(has(read_through_ring<RingFault::too_many_bytes>(reading, {}), "a bulk copy of"));
    CHECK(has(read_through_ring<RingFault::copy_not_awaited>(reading, {}),
              "a block ends while a bulk copy is under way"));
}

TEST_CASE("ring: a barrier that waits for a warp that does not come names the place") {
    const auto error_of = [](const KernelBody& body) {
        try {
            emulate({.n_blocks = 1, .shared_bytes = 256}, 64, {}, body);
        } catch (const std::logic_error& error) {
            return std::string(error.what());
        }
        return std::string();
    };
    const auto barrier_with = [&](int count) {
        return error_of([count](EmulatedThread& t) {
            auto* bar = reinterpret_cast<fast::Bar*>(t.shared());
            if (t.index() == 0) t.bar_start(bar, count);
            t.sync();
            t.wait_for_inputs();
            if (t.index() % 32 == 0) t.bar_arrive(bar);
            t.bar_wait(bar, 0);
        });
    };
    CHECK(barrier_with(2).empty());
    CHECK(has(barrier_with(3), "wait for each other, and for others in line"));
    CHECK(has(error_of([](EmulatedThread& t) { t.bar_arrive(reinterpret_cast<fast::Bar*>(t.shared())); }),
              "a barrier that was not started"));
    alignas(16) std::byte from[64] = {};
    const auto copy = [&](int to, int from_at) {
        return error_of([&, to, from_at](EmulatedThread& t) {
            if (t.index() > 0) return;
            auto* bar = reinterpret_cast<fast::Bar*>(t.shared());
            t.bar_start(bar, 1);
            t.bar_expect(bar, 32);
            t.copy_bulk(t.shared() + to, from + from_at, 32, bar);
            t.bar_wait(bar, 0);
        });
    };
    CHECK(copy(16, 16).empty());
    CHECK(has(error_of([](EmulatedThread& t) {
                  if (t.index() > 0) return;
                  auto* bar = reinterpret_cast<fast::Bar*>(t.shared());
                  t.bar_start(bar, 1);
                  t.bar_expect(bar, 32);
              }),
              "32 bytes that were announced"));
    CHECK(has(copy(16, 8), "multiples of 16 bytes"));
    CHECK(has(copy(24, 16), "multiples of 16 bytes"));
    CHECK(has(copy(1024, 16), "does not end in shared memory"));
}

TEST_CASE("ring: blocks that are on the device together hand pieces to each other") {
    using fast::Piece;
    using fast::Scope;
    constexpr int k_blocks = 3;
    constexpr int k_threads = 608;
    constexpr int k_pieces = 40;  // of a block
    // Each block puts pieces, and adds up those of all blocks; `off`: it takes those of another place.
    const auto run = [&](const Emulation& how, bool together, int off) {
        std::vector<Piece> boards(3 * k_blocks * k_pieces,
                                  Piece{});  // one for each turn: a block may be a turn ahead
        std::vector<uint32_t> sums(k_blocks, 0);
        try {
            emulate(
                {.n_blocks = k_blocks}, k_threads, how,
                [&](EmulatedThread& t) {
                    t.wait_for_inputs();
                    for (uint32_t turn = 1; turn <= 3; ++turn) {
                        Piece* board = boards.data() + (turn - 1) * k_blocks * k_pieces;
                        if (t.index() < k_pieces) {
                            const int own = t.block() * k_pieces + t.index();
                            t.put<Scope::device>(board + own, {static_cast<uint32_t>(own), turn, 0}, turn);
                        }
                        if (t.index() == 600) {
                            for (int i = 0; i < k_blocks * k_pieces; ++i) {
                                uint32_t words[3];
                                const auto at =
                                    static_cast<size_t>((i + off * (i / k_pieces)) % (k_blocks * k_pieces));
                                while (!t.get<Scope::device>(board + at, turn, words)) {
                                }
                                sums[static_cast<size_t>(t.block())] =
                                    31 * sums[static_cast<size_t>(t.block())] + words[0] + words[1];
                            }
                        }
                        t.sync();
                        t.sync();
                    }
                },
                together);
        } catch (const std::logic_error& error) {
            return std::string(error.what());
        }
        uint32_t expected = 0;
        for (uint32_t turn = 1; turn <= 3; ++turn)
            for (uint32_t i = 0; i < k_blocks * k_pieces; ++i) expected = 31 * expected + i + turn;
        return std::ranges::count(sums, expected) == k_blocks ? std::string() : std::string("wrong");
    };
    for (const Emulation& how : k_ring_emulations) CHECK(run(how, true, 0).empty());
    CHECK(has(run({}, false, 0), "wait for each other, and for others in line"));
    CHECK(run({}, true, 1) == "wrong");
}

}  // namespace minim::test
