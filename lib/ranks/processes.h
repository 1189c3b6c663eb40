// SPDX-License-Identifier: Apache-2.0
// The processes of a launch that compute one model together, as one of them sees them: their names, control messages between them,
// and what ends all waits if one of them is lost. Ranks are numbered process by process, by device within a process.
//
// A thread watches the other processes, in steps and between them. What ends the waits is final: every later call throws the same
// error.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "ranks/ended_processes.h"
#include "ranks/identity.h"
#include "ranks/link.h"
#include "runtime/transport.h"

namespace minim::ranks {

struct ProcessOptions {
    int32_t n_devices = 1;  // ranks of each process, the same number in all of them
    // How long a process that others wait for in a step may be silent.
    std::chrono::milliseconds timeout{30'000};
    // How much later than process 0 another process ends after an error. A launcher ends all processes when the first of them ends
    // with one. That should be the one that has the requests, after it has said what has happened.
    std::chrono::milliseconds lead{500};
};

// Any thread.
class Processes {
  public:
    using Clock = std::chrono::steady_clock;

    // Waits for all processes to do the same. Throws peer_lost, and what reading their messages throws.
    Processes(std::unique_ptr<Link> link, const ProcessOptions& options);
    // Tells the others that this process has closed the model, which ends their waits with an error, unless leave() was called. After
    // an error it returns after the lead of process 0.
    ~Processes();
    Processes(const Processes&) = delete;
    Processes& operator=(const Processes&) = delete;

    int32_t process() const noexcept { return process_; }
    int32_t size() const noexcept { return size_; }
    int32_t n_devices() const noexcept { return options_.n_devices; }
    std::chrono::milliseconds timeout() const noexcept { return options_.timeout; }
    const Identity& identity(int32_t process) const noexcept { return identities_[process]; }
    // Returns the name of a rank with its process, "rank 2 (host a, process 4711)"; of the process's first rank unless told otherwise.
    std::string name(int32_t process, int32_t device = 0) const;

    // Returns the end of a device's rank for messages to ranks of other processes. This object must outlive it.
    std::unique_ptr<runtime::Transport> connect(int32_t device);

    // Sends a control message, a copy of the bytes. Messages to one process arrive in the order of the calls. Waits only if too
    // many bytes are under way.
    void send(int32_t to, std::span<const std::byte> message);
    // Waits for the next control message of a process. Throws peer_lost if the process is silent for longer than the limit; without
    // one it waits for ever, and then takes nearly no processor time. One thread at a time for each process.
    std::vector<std::byte> receive(int32_t from,
                                   std::optional<std::chrono::milliseconds> limit = std::nullopt);

    // Ends the waits of all processes with an error of a device's rank: now and later, and in others with the rank's name in front.
    // The first error counts.
    void abandon(const Error& error, int32_t device = 0) noexcept;
    // Throws the error that the waits have ended with, if they have.
    void require() const;
    // Returns the process whose loss has ended the waits; -1: none.
    int32_t lost() const;

    // The last call before the end: the work is done, and this process may end without a loss for the others.
    void leave() noexcept;

    // Gives process 0 its lead, in every other process.
    void let_leader_go_first() const;

    // For transports: the link, that a message of a process has arrived, and the time limit of a wait for one that began at `since`;
    // it throws peer_lost after ending all waits, naming this process, or another one that stands still.
    Link& link() noexcept { return *link_; }
    void note_message(int32_t from) noexcept;
    Clock::time_point last_message(int32_t from) const noexcept;
    void limit_silence(int32_t from, Clock::time_point since, std::chrono::milliseconds limit);

  private:
    struct Outgoing {
        std::vector<std::byte> bytes;
        Transfer transfer;
    };
    void exchange_identities();
    std::vector<std::byte> take(int32_t from, int32_t tag, uint64_t n_bytes);
    void post(int32_t to, int32_t tag, std::vector<std::byte> bytes);
    void end_sends();
    bool has_sends() const;
    void watch();
    void look_at_end(int32_t process);
    void look_at_notices();
    void look_at_notice(int32_t p, uint64_t n_bytes);
    void send_beats();
    void end_without_leader();
    std::optional<int32_t> standing_still() const;
    void end_waits(const Error& error, int32_t lost, std::optional<std::string> text_for_others) noexcept;

    const std::unique_ptr<Link> link_;
    const ProcessOptions options_;
    const int32_t process_;
    const int32_t size_;
    std::vector<Identity> identities_;
    std::vector<std::atomic<Clock::rep>> last_messages_;
    std::vector<std::atomic<Clock::rep>> last_beats_;  // signs of life of the watching threads
    int64_t n_beats_unheard_ = 0;  // own ones since the last one of process 0; of the watching thread

    mutable std::mutex send_mutex_;  // guards these two
    std::deque<Outgoing> outgoing_;
    uint64_t n_outgoing_bytes_ = 0;

    mutable std::mutex error_mutex_;  // guards these
    std::optional<Error> error_;
    int32_t lost_ = -1;
    std::vector<std::vector<std::byte>> unfinished_;  // buffers of receives that an error has ended

    std::atomic<bool> is_abandoned_ = false;  // set after error_
    std::atomic<bool> has_left_ = false;
    std::atomic<bool> is_stopping_ = false;
    std::vector<std::atomic<bool>> have_left_;  // of the others
    EndedProcesses ended_;
    std::thread watcher_;
};

// Returns the end of each rank of this process, for messages to all ranks. `processes` must outlive them.
std::vector<std::unique_ptr<runtime::Transport>> connect_ranks(Processes& processes);

}  // namespace minim::ranks
