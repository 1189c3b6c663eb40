// SPDX-License-Identifier: Apache-2.0
// The host's side of an exchange with a GPU (backend/exchange.h), and the addresses for the GPU's side. Both sides use
// the same pinned memory.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>

#include "backend/backend.h"
#include "cuda/fast/operations.h"

namespace minim::cuda {

// The most rows that a kernel hands to the host. For more rows copies are faster, but they take longer to start and are
// not recorded.
inline constexpr int64_t k_max_posted_rows = 64;

// Returns how long a host spins for a device's part of a layer, which took `expected` so far, before it leaves the core to others.
std::chrono::nanoseconds spin_time(std::chrono::nanoseconds expected) noexcept;

class HostExchange : public backend::Exchange {
  public:
    // by_flags: a flag for each turn and way says that all of it is there. by_pieces: what the device posts, and answers for at most
    // k_max_posted_rows rows, are numbered with the turn (fast/piece.h).
    enum class Way : uint8_t { by_flags, by_pieces };

    // Returns the bytes of memory for n_turns turns of steps within the limits.
    static uint64_t bytes(const backend::StepLimits& limits, int64_t n_turns, Way way);

    // `memory`: bytes() of pinned memory. `check` throws device_lost.
    HostExchange(std::shared_ptr<backend::Memory> memory, const backend::StepLimits& limits, int64_t n_turns,
                 Way way, std::function<void()> check);

    void begin() override;
    bool wait(int64_t turn, const CancelToken* cancel) override;
    Turn turn() const noexcept override { return {h_, ids_, out_}; }
    void answer(int64_t turn) noexcept override;
    void give_up() noexcept override;

    // Return the addresses for kernels, which are those of the host.
    fast::Posted posted(int64_t turn) const noexcept;
    const uint32_t* answered(int64_t turn) const noexcept;
    // The same of an exchange by pieces. `step`: where the device has the number of its step.
    bool is_by_pieces() const noexcept { return way_ == Way::by_pieces; }
    fast::PostedPieces posted_pieces(int64_t turn, const uint32_t* step) const noexcept;
    fast::AwaitedPieces awaited_pieces(int64_t turn, const uint32_t* step, int64_t patience) const noexcept;
    // Returns where the device takes the number of the step from before it posts the turn; null: it has it already. The driving
    // thread calls it for each turn that it posts.
    const uint32_t* step_to_take(int64_t turn) noexcept;
    // Returns where the host's answer to a turn with answered() goes, and copies of h and ids.
    float* h() const noexcept { return h_; }
    int32_t* ids() const noexcept { return ids_; }

    // Returns the flag that a kernel sets if it has waited for an answer in vain. begin() clears it.
    std::shared_ptr<uint32_t> late() const noexcept { return late_; }

  private:
    bool is_posted(int64_t turn) noexcept;
    uint32_t number_of(int64_t turn) const noexcept {
        return step_ * static_cast<uint32_t>(n_turns_) + static_cast<uint32_t>(turn) + 1;
    }
    void clear_pieces() noexcept;
    void mark_slots() noexcept;

    const std::shared_ptr<backend::Memory> memory_;  // the pointers below point into it
    const Way way_;
    const int64_t n_turns_;
    const int64_t hidden_;
    const std::function<void()> check_;
    fast::Flag* to_host_;    // [n_turns]
    fast::Flag* to_device_;  // [n_turns]
    std::shared_ptr<uint32_t> late_;
    float* h_;      // [n_rows, hidden]
    int32_t* ids_;  // [n_rows, n_used]
    float* out_;    // [n_rows * n_used, hidden]
    std::atomic<bool> is_given_up_ = false;

    // Of an exchange by pieces; [..] of at most k_max_posted_rows rows:
    fast::Flag* host_step_ = nullptr;  // the step that the host has begun
    fast::Flag* ended_ = nullptr;      // the last step that was given up
    fast::Piece* posted_flag_ = nullptr;
    fast::Piece* posted_ids_ = nullptr;  // [rows, pieces_of(n_used)]
    fast::Piece* answer_ = nullptr;      // [rows * n_used, pieces_of(hidden)]
    int64_t n_id_pieces_ = 0;
    int64_t n_answer_pieces_ = 0;
    uint32_t step_ = 0;
    int64_t last_posted_ = INT64_MAX;  // of the step; INT64_MAX: none
    std::atomic<bool> has_set_flags_ = true;
    // Of the answering thread:
    int64_t n_ids_ = 0;  // of the turn; 0: it was posted by copies
    std::chrono::nanoseconds expected_{0};
};

}  // namespace minim::cuda
