// SPDX-License-Identifier: Apache-2.0
#include "cuda/exchange.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "base/half.h"
#include "base/pause.h"
#include "cuda/host_piece.h"
#include "cuda/taker.h"

namespace minim::cuda {
namespace {

using Clock = std::chrono::steady_clock;

// How a host waits: it spins first. A device that decodes posts a layer's inputs some 100 us after those of the layer
// before; a sleep, which takes at least 60 us, would lengthen every layer. In longer waits the host leaves the core to
// other threads.
constexpr std::chrono::microseconds k_spin{50};
constexpr std::chrono::microseconds k_yield{1000};
constexpr std::chrono::microseconds k_nap{10};
// How often a host that waits asks whether the device is still there. The driver may make that call wait for all work of the
// device, for example while another thread gives memory back, and that work may wait for this host. So the host asks rarely.
constexpr std::chrono::milliseconds k_look_interval{100};

uint32_t load_flag(uint32_t& flag) noexcept {
    return std::atomic_ref(flag).load(std::memory_order_acquire);
}

void store_flag(uint32_t& flag, uint32_t value) noexcept {
    std::atomic_ref(flag).store(value, std::memory_order_release);
}

// A slot that the host has not written. It is a signalling NaN, which no arithmetic gives as a result.
constexpr uint32_t k_unwritten = 0x7FA0'5107;

struct Layout {
    fast::Flag* to_host = nullptr;
    fast::Flag* to_device = nullptr;
    fast::Flag* late = nullptr;
    float* h = nullptr;
    int32_t* ids = nullptr;
    float* out = nullptr;
    fast::Flag* host_step = nullptr;
    fast::Flag* ended = nullptr;
    fast::Piece* posted_flag = nullptr;
    fast::Piece* posted_ids = nullptr;
    fast::Piece* answer = nullptr;
    int64_t n_id_pieces = 0;
    int64_t n_answer_pieces = 0;
    uint64_t bytes = 0;

    Layout(std::byte* base, const backend::StepLimits& limits, int64_t n_turns, HostExchange::Way way) {
        const int64_t n_slots = limits.n_rows * limits.n_expert_used;
        Taker taker(base);
        taker.take(to_host, n_turns);
        taker.take(to_device, n_turns);
        taker.take(late, 1);
        taker.take(h, limits.n_rows * limits.hidden);
        taker.take(ids, n_slots);
        taker.take(out, n_slots * limits.hidden);
        if (way == HostExchange::Way::by_pieces) {
            const int64_t n_rows = std::min(limits.n_rows, k_max_posted_rows);
            n_id_pieces = n_rows * fast::pieces_of(limits.n_expert_used);
            n_answer_pieces = n_rows * limits.n_expert_used * fast::pieces_of(limits.hidden);
            taker.take(host_step, 1);
            taker.take(ended, 1);
            taker.take(posted_flag, 1);
            taker.take(posted_ids, n_id_pieces);
            taker.take(answer, n_answer_pieces + 1);  // the last one says that all are written
        }
        bytes = taker.bytes();
    }
};

// Writes a slot's floats as pieces.
void store_slot(const float* from, int64_t hidden, uint32_t turn, fast::Piece* to) noexcept {
    const int64_t n_whole = hidden / fast::k_piece_words;
    for (int64_t k = 0; k < n_whole; ++k) {
        const float* three = from + fast::k_piece_words * k;
        store_piece(to + k,
                    {{float_to_bits(three[0]), float_to_bits(three[1]), float_to_bits(three[2])}, turn});
    }
    if (n_whole == fast::pieces_of(hidden)) return;
    fast::Piece last = {{0, 0, 0}, turn};
    for (int64_t i = fast::k_piece_words * n_whole; i < hidden; ++i)
        last.word[i % fast::k_piece_words] = float_to_bits(from[i]);
    store_piece(to + n_whole, last);
}

}  // namespace

std::chrono::nanoseconds spin_time(std::chrono::nanoseconds expected) noexcept {
    constexpr std::chrono::nanoseconds k_longest_spin{200'000};
    // Half as long again: a host that yields a moment too early loses more than one that spins a little longer.
    return std::clamp<std::chrono::nanoseconds>(expected + expected / 2, k_spin, k_longest_spin);
}

uint64_t HostExchange::bytes(const backend::StepLimits& limits, int64_t n_turns, Way way) {
    return Layout(nullptr, limits, n_turns, way).bytes;
}

HostExchange::HostExchange(std::shared_ptr<backend::Memory> memory, const backend::StepLimits& limits,
                           int64_t n_turns, Way way, std::function<void()> check)
    : memory_(std::move(memory)),
      way_(way),
      n_turns_(n_turns),
      hidden_(limits.hidden),
      check_(std::move(check)) {
    const Layout layout(memory_->data(), limits, n_turns, way);
    to_host_ = layout.to_host;
    to_device_ = layout.to_device;
    late_ = {memory_, &layout.late->value};
    h_ = layout.h;
    ids_ = layout.ids;
    out_ = layout.out;
    host_step_ = layout.host_step;
    ended_ = layout.ended;
    posted_flag_ = layout.posted_flag;
    posted_ids_ = layout.posted_ids;
    answer_ = layout.answer;
    n_id_pieces_ = layout.n_id_pieces;
    n_answer_pieces_ = layout.n_answer_pieces;
    if (is_by_pieces()) clear_pieces();
    begin();
}

// No turn has been written yet.
void HostExchange::clear_pieces() noexcept {
    constexpr fast::Piece k_none = {};
    store_piece(posted_flag_, k_none);
    for (int64_t i = 0; i < n_id_pieces_; ++i) store_piece(posted_ids_ + i, k_none);
    for (int64_t i = 0; i <= n_answer_pieces_; ++i) store_piece(answer_ + i, k_none);
    store_flag(ended_->value, 0);
    step_ = 0;
}

void HostExchange::begin() {
    if (has_set_flags_.exchange(!is_by_pieces()))
        for (int64_t turn = 0; turn < n_turns_; ++turn) {
            store_flag(to_host_[turn].value, fast::k_flag_clear);
            store_flag(to_device_[turn].value, fast::k_flag_clear);
        }
    if (is_by_pieces()) {
        // The numbers of all turns of a step, from 1 on, are below 2^32.
        if (step_ >= UINT32_MAX / static_cast<uint32_t>(n_turns_) - 1) clear_pieces();
        ++step_;
        store_flag(host_step_->value, step_);
        last_posted_ = INT64_MAX;
    }
    store_flag(*late_, fast::k_flag_clear);
    is_given_up_ = false;
}

// Marks the slots of `out`, so that answer() finds those that the host has computed.
void HostExchange::mark_slots() noexcept {
    for (int64_t slot = 0; slot < n_ids_; ++slot) out_[slot * hidden_] = bits_to_float(k_unwritten);
}

// Returns whether all of the turn is there.
bool HostExchange::is_posted(int64_t turn) noexcept {
    if (!is_by_pieces()) return load_flag(to_host_[turn].value) != fast::k_flag_clear;
    const uint32_t number = number_of(turn);
    const fast::Piece flag = load_piece(posted_flag_);
    if (flag.turn != number) return false;
    const int64_t n_used = flag.word[1];
    const int64_t n_pieces = flag.word[0] * fast::pieces_of(n_used);
    for (int64_t i = 0; i < n_pieces; ++i) {
        const fast::Piece piece = load_piece(posted_ids_ + i);
        if (piece.turn != number) return false;
        const int64_t row = i / fast::pieces_of(n_used);
        const int64_t first = i % fast::pieces_of(n_used) * fast::k_piece_words;
        for (int64_t k = 0; k < fast::k_piece_words && first + k < n_used; ++k)
            ids_[row * n_used + first + k] = static_cast<int32_t>(piece.word[k]);
    }
    n_ids_ = flag.word[0] * n_used;
    mark_slots();
    std::atomic_thread_fence(std::memory_order_acquire);  // h was written before the flag
    return true;
}

bool HostExchange::wait(int64_t turn, const CancelToken* cancel) {
    const auto start = Clock::now();
    auto next_look = start + k_look_interval;
    const auto spin = is_by_pieces() ? spin_time(expected_) : k_spin;
    while (!is_posted(turn)) {
        if (is_given_up_) return false;
        const auto now = Clock::now();
        if (now - start < spin) {
            pause_core();
            continue;
        }
        if (is_cancelled(cancel)) {
            give_up();
            return false;
        }
        if (now - start < k_yield) {
            std::this_thread::yield();
            continue;
        }
        if (now >= next_look) {
            check_();
            next_look = now + k_look_interval;
        }
        std::this_thread::sleep_for(k_nap);
    }
    expected_ += (Clock::now() - start - expected_) / 8;
    return !is_given_up_;
}

void HostExchange::answer(int64_t turn) noexcept {
    if (is_by_pieces() && n_ids_ > 0) {
        for (int64_t slot = 0; slot < n_ids_; ++slot)
            if (float_to_bits(out_[slot * hidden_]) != k_unwritten)
                store_slot(out_ + slot * hidden_, hidden_, number_of(turn),
                           answer_ + slot * fast::pieces_of(hidden_));
        store_piece(answer_ + n_answer_pieces_, {{0, 0, 0}, number_of(turn)});
        return;
    }
    has_set_flags_ = true;
    store_flag(to_device_[turn].value, fast::k_flag_set);
}

void HostExchange::give_up() noexcept {
    is_given_up_ = true;
    has_set_flags_ = true;
    for (int64_t turn = 0; turn < n_turns_; ++turn) store_flag(to_device_[turn].value, fast::k_flag_given_up);
    if (is_by_pieces()) store_flag(ended_->value, step_);
}

fast::Posted HostExchange::posted(int64_t turn) const noexcept {
    return {h_, ids_, &to_host_[turn].value};
}

const uint32_t* HostExchange::answered(int64_t turn) const noexcept {
    return &to_device_[turn].value;
}

fast::PostedPieces HostExchange::posted_pieces(int64_t turn, const uint32_t* step) const noexcept {
    return {
        h_, posted_ids_, posted_flag_, {step, static_cast<uint32_t>(n_turns_), static_cast<uint32_t>(turn)}};
}

fast::AwaitedPieces HostExchange::awaited_pieces(int64_t turn, const uint32_t* step,
                                                 int64_t patience) const noexcept {
    return {answer_,        {step, static_cast<uint32_t>(n_turns_), static_cast<uint32_t>(turn)},
            &ended_->value, late_.get(),
            patience,       answer_ + n_answer_pieces_};
}

// A turn that comes again, or one before the last: the step is computed anew, since its record failed.
const uint32_t* HostExchange::step_to_take(int64_t turn) noexcept {
    return turn <= std::exchange(last_posted_, turn) ? &host_step_->value : nullptr;
}

}  // namespace minim::cuda
