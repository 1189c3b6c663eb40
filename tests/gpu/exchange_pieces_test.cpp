// SPDX-License-Identifier: Apache-2.0
// Exchanges with the host by numbered pieces (cuda/fast/piece.h): the same bits as by flags, in fewer kernels, whatever comes late, in
// another order or not at all.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/cancel.h"
#include "base/half.h"
#include "cuda/exchange.h"
#include "cuda/fast/operations.h"
#include "cuda/host_piece.h"
#include "cuda/stream.h"
#include "gpu/fixture.h"
#include "gpu/launch_paths.h"
#include "gpu/support.h"
#include "support/catch.h"
#include "support/helpers.h"

namespace minim::test {
namespace {

using backend::Arithmetic;
using backend::Exchange;
using backend::ExpertPlace;
using backend::Matrix;
using cuda::fast::Flag;
using cuda::fast::Piece;

constexpr const char* k_by_pieces = "exchange-pieces";
constexpr int64_t k_layer_experts = 9;
constexpr int64_t k_layer_used = 3;
constexpr int64_t k_one_millisecond = 1'000'000;  // nanoseconds

// SharedLayers whose experts with even numbers are on the device, with outputs that are given, and whose others the host computes.
struct SharedLayers {
    static constexpr int64_t k_layers = 4;

    SharedLayers(int64_t n_rows, int64_t width, Arithmetic arithmetic)
        : f(arithmetic), n(n_rows), hidden(width), layout{.n_layer = 1, .n_head_kv = 4, .head_dim = 128} {
        limits = k_limits;
        limits.n_rows = n;
        limits.hidden = hidden;
        stream = f.device->reserve(limits);
        exchange = f.device->make_exchange(limits, k_layers);
        REQUIRE(exchange != nullptr);
        Random random(21);
        router = f.put(TestMatrix(Format::f32, k_layer_experts, hidden, random));
        norm = {f.put(random.normal(hidden)), hidden};
        host_x = random.normal(n * hidden);
        x = f.put(host_x);
        h = f.put(std::vector<float>(host_x.size()));
        host_out = random.normal(n * k_layer_used * hidden);
        given = f.put(host_out);
        out = f.put(host_out);
        ids = f.put(std::vector<int32_t>(static_cast<size_t>(n * k_layer_used)));
        gates = f.put(std::vector<float>(static_cast<size_t>(n * k_layer_used)));
        std::vector<ExpertPlace> places(k_layer_experts);
        for (size_t e = 0; e < k_layer_experts; ++e) {
            is_here.push_back(e % 2 == 0 ? 1 : 0);
            if (is_here[e] != 0) places[e].gate = reinterpret_cast<const std::byte*>(this);
        }
        table = f.put(places);
        page = f.device->allocate(static_cast<uint64_t>(layout.page_bytes()), "a page");
        pages[0] = page->data();
        sequence = {&layout, pages};
        for (int64_t i = 0; i < n; ++i) rows.push_back({&sequence, i});
    }

    void start() {
        for (int64_t layer = 0; layer < k_layers; ++layer) {
            f.device->move(*stream, reinterpret_cast<std::byte*>(out),
                           reinterpret_cast<const std::byte*>(given), host_out.size() * sizeof(float));
            f.device->norm(*stream, x, n, norm, 1e-6F, h);
            f.device->route(*stream, h, n, router, {}, k_layer_used, ids, gates);
            f.device->post(*stream, *exchange, layer, h, ids, n, k_layer_used, hidden);
            f.device->collect(*stream, *exchange, layer, table, ids, n, k_layer_used, hidden, out);
            f.device->add_slots(*stream, out, gates, n, k_layer_used, hidden, x);
        }
    }
    void answer_all() {
        for (int64_t layer = 0; layer < k_layers; ++layer) {
            if (!exchange->wait(layer, nullptr)) return;
            const Exchange::Turn turn = exchange->turn();
            for (int64_t i = 0; i < n * k_layer_used * hidden; ++i) {
                const int64_t slot = i / hidden;
                const int32_t id = turn.ids[slot];
                if (is_here[static_cast<size_t>(id)] == 0)
                    turn.out[i] =
                        0.5F * turn.h[slot / k_layer_used * hidden + i % hidden] + static_cast<float>(id);
            }
            exchange->answer(layer);
        }
    }
    // Returns x after a step: computed, recorded or repeated.
    std::vector<float> step() {
        f.device->write(reinterpret_cast<std::byte*>(x), reinterpret_cast<const std::byte*>(host_x.data()),
                        host_x.size() * sizeof(float));
        exchange->begin();
        const backend::StepBatch batch = {
            .ids = {}, .rows = rows, .n_head = 12, .n_head_kv = 4, .calls = this};
        std::thread host([&] { answer_all(); });
        do {
            if (f.device->begin_step(*stream, batch)) break;
            start();
        } while (!f.device->end_step(*stream));
        host.join();
        f.device->wait(*stream);
        return f.get(x, host_x.size());
    }

    Fixture f;
    int64_t n;
    int64_t hidden;
    backend::KvLayout layout;
    backend::StepLimits limits;
    std::unique_ptr<backend::Scratch> stream;
    std::unique_ptr<Exchange> exchange;  // ends before the stream
    Matrix router;
    backend::Vector norm;
    std::vector<float> host_x, host_out;
    std::vector<uint8_t> is_here;
    float *x, *h, *out, *gates;
    const float* given;  // the outputs of the device's experts, in every layer
    int32_t* ids;
    const ExpertPlace* table;
    std::unique_ptr<backend::Memory> page;
    std::byte* pages[1];
    backend::KvSequence sequence;
    std::vector<backend::KvRow> rows;
};

// What a kernel collects of pieces that a test writes itself: of two rows, in the host's memory.
struct PieceAnswer {
    static constexpr int64_t k_rows = 2;
    static constexpr int64_t k_hidden = 100;  // three blocks of threads; the last piece has one float
    static constexpr uint32_t k_step = 5;
    static constexpr uint32_t k_turns = 7;
    static constexpr uint32_t k_turn = k_step * k_turns + 3 + 1;
    static constexpr int64_t k_slot_pieces = cuda::fast::pieces_of(k_hidden);

    explicit PieceAnswer(Fixture& fixture) : f(fixture) {
        const std::vector<int32_t> host_ids = {1, 2, 3, 4, 5, 7};
        const int64_t n_slots = std::ssize(host_ids);
        std::vector<ExpertPlace> places(k_layer_experts);
        for (size_t e = 0; e < k_layer_experts; e += 2)
            places[e].gate = reinterpret_cast<const std::byte*>(this);
        memory = f.device->allocate_staging(
            2 * sizeof(Flag) + static_cast<uint64_t>(n_slots * k_slot_pieces) * sizeof(Piece), "pieces");
        flags = reinterpret_cast<Flag*>(memory->data());
        pieces = reinterpret_cast<Piece*>(flags + 2);
        Random random(22);
        values = random.normal(n_slots * k_hidden);
        for (int64_t slot = 0; slot < n_slots; ++slot)
            if (host_ids[static_cast<size_t>(slot)] % 2 != 0)
                for (int64_t k = 0; k < k_slot_pieces; ++k) host_pieces.push_back(slot * k_slot_pieces + k);
        for (int64_t i = 0; i < n_slots * k_slot_pieces; ++i)
            cuda::store_piece(pieces + i, {{0, 0, 0}, k_turn - 1});
        flags[0].value = flags[1].value = 0;
        const std::vector<float> host_gates = random.normal(n_slots);
        before = random.normal(k_rows * k_hidden);
        // Not read where the host answers.
        std::vector<float> host_out = values;
        expected = before;
        for (int64_t i = 0; i < k_rows * k_hidden; ++i)
            for (int64_t s = 0; s < k_layer_used; ++s) {
                const int64_t slot = i / k_hidden * k_layer_used + s;
                const auto at = static_cast<size_t>(slot * k_hidden + i % k_hidden);
                const float product = host_gates[static_cast<size_t>(slot)] * values[at];
                expected[static_cast<size_t>(i)] += product;
                if (host_ids[static_cast<size_t>(slot)] % 2 != 0) host_out[at] = 1e6F;
            }
        slots = {.places = f.put(places),
                 .ids = f.put(host_ids),
                 .n = k_rows,
                 .n_used = k_layer_used,
                 .hidden = k_hidden,
                 .out = f.put(host_out),
                 .gates = f.put(host_gates),
                 .y = f.put(before)};
        step = f.put(std::vector<uint32_t>(1, k_step));
    }
    // Writes piece i of all.
    void write(int64_t i) const {
        Piece piece = {{0, 0, 0}, k_turn};
        const int64_t first = i % k_slot_pieces * cuda::fast::k_piece_words;
        for (int64_t e = 0; e < cuda::fast::k_piece_words && first + e < k_hidden; ++e)
            piece.word[e] =
                float_to_bits(values[static_cast<size_t>(i / k_slot_pieces * k_hidden + first + e)]);
        cuda::store_piece(pieces + i, piece);
    }
    void collect(int64_t patience) const {
        f.device->synchronize(*f.stream);
        cuda::fast::collect_pieces(static_cast<const cuda::Stream&>(*f.stream).stream,
                                   {pieces, {step, k_turns, 3}, &flags[0].value, &flags[1].value, patience},
                                   slots);
    }
    std::vector<float> result() const {
        f.device->synchronize(*f.stream);
        return f.get(slots.y, before.size());
    }
    bool is_late() const { return flags[1].value == cuda::fast::k_flag_set; }

    Fixture& f;
    std::unique_ptr<backend::Memory> memory;
    Flag* flags;  // the step that was given up; too late
    Piece* pieces;
    std::vector<int64_t> host_pieces;
    std::vector<float> values, before, expected;
    cuda::fast::CollectedSlots slots;
    const uint32_t* step;
};

}  // namespace

TEST_CASE(
    "gpu exchange: by pieces, a step has the bits that it has by flags, computed, recorded and repeated") {
    if (!has_devices(1)) return;
    for (const Arithmetic arithmetic : {Arithmetic::fast, Arithmetic::deterministic}) {
        // The kernel of the choice posts up to four rows; one for more rows does it alone.
        for (const int64_t n : {1, 2, 4, 5}) {
            for (const int64_t hidden : {96, 352}) {
                INFO(n << " rows of " << hidden << ", arithmetic " << static_cast<int>(arithmetic));
                SharedLayers by_flags(n, hidden, arithmetic);
                const std::vector<float> expected = by_flags.step();
                CHECK_FALSE(same_bits(expected, by_flags.host_x));
                const SetLaunchPaths set(k_by_pieces);
                SharedLayers layers(n, hidden, arithmetic);
                CHECK(static_cast<cuda::HostExchange&>(*layers.exchange).is_by_pieces());
                for (int step = 0; step < 5; ++step) CHECK(same_bits(layers.step(), expected));
                CHECK(layers.f.device->step_counts().repeated == 4);
            }
        }
    }
}

TEST_CASE("gpu exchange: pieces that arrive in any order are each waited for") {
    if (!has_devices(1)) return;
    Fixture f(Arithmetic::fast);
    for (const uint32_t seed : {0U, 1U, 2U}) {
        const PieceAnswer answer(f);
        std::vector<int64_t> order = answer.host_pieces;
        std::shuffle(order.begin(), order.end(), std::mt19937(seed));
        std::thread host([&] {
            for (size_t i = 0; i < order.size(); ++i) {
                answer.write(order[i]);
                if (i % 40 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
            }
        });
        answer.collect(20'000 * k_one_millisecond);
        CHECK(same_bits(answer.result(), answer.expected));
        host.join();
        CHECK_FALSE(answer.is_late());
    }
}

TEST_CASE(
    "gpu exchange: a piece that does not come is said to be late, and a step that is given up ends at once") {
    if (!has_devices(1)) return;
    Fixture f(Arithmetic::fast);
    {
        const PieceAnswer none(f);
        none.collect(k_one_millisecond);
        none.result();
        CHECK(none.is_late());
    }
    for (const size_t missing : {size_t{0}, size_t{40}}) {
        const PieceAnswer answer(f);
        for (size_t i = 0; i < answer.host_pieces.size(); ++i)
            if (i != missing) answer.write(answer.host_pieces[i]);
        answer.collect(k_one_millisecond);
        const std::vector<float> result = answer.result();
        CHECK(answer.is_late());
        size_t n_wrong = 0;  // the floats of the piece
        for (size_t i = 0; i < result.size(); ++i) n_wrong += result[i] == answer.expected[i] ? 0 : 1;
        CHECK((n_wrong > 0 && n_wrong <= 3));
    }
    const PieceAnswer given_up(f);
    std::thread host([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        std::atomic_ref(given_up.flags[0].value).store(PieceAnswer::k_step);
    });
    const auto start = std::chrono::steady_clock::now();
    given_up.collect(20'000 * k_one_millisecond);
    given_up.result();
    CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(15));
    CHECK_FALSE(given_up.is_late());
    host.join();
    // Another step's end does not concern this one.
    const PieceAnswer other(f);
    other.flags[0].value = PieceAnswer::k_step - 1;
    other.collect(k_one_millisecond);
    other.result();
    CHECK(other.is_late());
}

TEST_CASE(
    "gpu exchange: what a step before has left is not taken for a later one's, though its numbers are "
    "equal") {
    if (!has_devices(1)) return;
    const SetLaunchPaths set(k_by_pieces);
    SharedLayers layers(1, 96, Arithmetic::fast);
    const std::vector<float> first = layers.step();
    // The host does not take the rows of the last step for posted ones.
    layers.exchange->begin();
    for (int64_t turn = 0; turn < SharedLayers::k_layers; ++turn) {
        CancelToken cancel;
        cancel.trigger();
        CHECK_FALSE(layers.exchange->wait(turn, &cancel));
        layers.exchange->begin();
    }
    // Nor does the device take the last answers: one that comes late is waited for.
    for (const int64_t delay : {0, 5}) {
        const auto& exchange = static_cast<const cuda::HostExchange&>(*layers.exchange);
        std::thread host;
        layers.f.device->write(reinterpret_cast<std::byte*>(layers.x),
                               reinterpret_cast<const std::byte*>(layers.host_x.data()),
                               layers.host_x.size() * sizeof(float));
        layers.exchange->begin();
        host = std::thread([&] {
            std::this_thread::sleep_for(std::chrono::milliseconds(delay));
            layers.answer_all();
        });
        layers.start();
        host.join();
        layers.f.device->synchronize(*layers.stream);
        CHECK(same_bits(layers.f.get(layers.x, layers.host_x.size()), first));
        CHECK(*exchange.late() == cuda::fast::k_flag_clear);
    }
}

TEST_CASE("gpu exchange: a host spins half as long again as a layer took, within limits") {
    using std::chrono::microseconds;
    CHECK(cuda::spin_time(microseconds(0)) == microseconds(50));
    CHECK(cuda::spin_time(microseconds(100)) == microseconds(150));
    CHECK(cuda::spin_time(microseconds(5000)) == microseconds(200));
}

}  // namespace minim::test
