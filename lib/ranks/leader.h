// SPDX-License-Identifier: Apache-2.0
// The process that has the API, the scheduler and the sampler, as it drives the others (messages.h).
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "kv/remote_pages.h"
#include "ranks/messages.h"
#include "ranks/processes.h"
#include "runtime/remote_ranks.h"

namespace minim::ranks {

// Any thread.
class Leader final : public runtime::RemoteRanks, public kv::RemotePages {
  public:
    // `processes` must outlive it.
    explicit Leader(Processes& processes);
    // Ends the other processes' work, after which all may leave.
    ~Leader() override;
    Leader(const Leader&) = delete;
    Leader& operator=(const Leader&) = delete;

    uint32_t make_space(int64_t n_rows, int64_t n_context) override;
    void end_space(uint32_t space) noexcept override;
    void start(uint32_t space, std::span<const runtime::StepRow> rows) override;

    uint32_t make_pool(const backend::KvLayout& whole) override;
    void end_pool(uint32_t pool) noexcept override;
    void add_slab(uint32_t pool, int32_t slab, int64_t n_pages) override;
    void drop_slab(uint32_t pool, int32_t slab) noexcept override;
    void copy(uint32_t pool, backend::KvPage from, backend::KvPage to) noexcept override;
    std::vector<std::byte> read(uint32_t pool, backend::KvPage page, int32_t process) override;
    void write(uint32_t pool, backend::KvPage page, int32_t process,
               std::span<const std::byte> bytes) override;

  private:
    void send(int32_t process, const Message& message);
    void send_to_all(const Message& message);
    void tell_all(const Message& message) noexcept;
    AnswerMessage answer_of(int32_t process, std::chrono::milliseconds limit);
    void ask_all(const Message& request, const Message& undo);
    [[noreturn]] void throw_refusal(int32_t process, const AnswerMessage& answer) const;

    Processes& processes_;
    std::mutex ask_mutex_;   // one question at a time
    std::mutex send_mutex_;  // guards n_sent_, and keeps one order of messages in all processes
    std::vector<uint64_t> n_sent_;
    std::vector<uint64_t> n_answers_;  // guarded by ask_mutex_
    std::atomic<uint32_t> n_spaces_ = 0;
    std::atomic<uint32_t> n_pools_ = 0;
};

// Returns the message of a step: its rows, and the page tables of their sequences. Throws internal if a sequence has none.
StepMessage make_step(uint32_t space, std::span<const runtime::StepRow> rows);

}  // namespace minim::ranks
