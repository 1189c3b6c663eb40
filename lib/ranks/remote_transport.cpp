// SPDX-License-Identifier: Apache-2.0
#include "ranks/remote_transport.h"

#include <algorithm>
#include <vector>

#include "ranks/tags.h"

namespace minim::ranks {
namespace {

using Clock = Processes::Clock;

class RemoteTransport final : public runtime::Transport {
  public:
    RemoteTransport(Processes& processes, int32_t device) : processes_(processes), device_(device) {}

    int32_t rank() const noexcept override { return processes_.process() * processes_.n_devices() + device_; }
    int32_t size() const noexcept override { return processes_.size() * processes_.n_devices(); }

    Ticket send(int32_t to, std::span<const std::byte> bytes) override {
        processes_.require();
        const Place place = place_of(to);
        add(processes_.link().send(place.process, rank_tag(device_, place.device), bytes), place.process,
            nullptr, bytes.size());
        return last_ticket_;
    }

    Ticket receive(int32_t from, std::span<std::byte> bytes) override {
        processes_.require();
        const Place place = place_of(from);
        add(processes_.link().receive(place.process, rank_tag(place.device, device_), bytes), place.process,
            bytes.data(), bytes.size());
        return last_ticket_;
    }

    int64_t count_unfinished(std::span<const Ticket> tickets) override {
        try {
            processes_.require();
            if (!pending_.empty()) end_some();
            return std::ranges::count_if(pending_, [&](const Pending& pending) {
                return std::ranges::find(tickets, pending.ticket) != tickets.end();
            });
        } catch (...) {
            pending_.clear();
            throw;
        }
    }

    void abandon(const Error& error) noexcept override { processes_.abandon(error, device_); }
    void throw_if_abandoned() const override { processes_.require(); }

  private:
    struct Place {
        int32_t process;
        int32_t device;
    };
    struct Pending {
        Ticket ticket;
        int32_t process;
        const std::byte* received;  // null: a message that is sent
        uint64_t n_bytes;
        Transfer transfer;
    };

    Place place_of(int32_t rank) const {
        return {rank / processes_.n_devices(), rank % processes_.n_devices()};
    }

    void add(const Transfer& transfer, int32_t process, const std::byte* received, uint64_t n_bytes) {
        pending_.push_back({++last_ticket_, process, received, n_bytes, transfer});
        last_progress_ = Clock::now();
    }

    void end_some() {
        transfers_.clear();
        for (Pending& pending : pending_) transfers_.push_back(&pending.transfer);
        processes_.link().end_some(transfers_);
        const size_t n_before = pending_.size();
        std::erase_if(pending_, [&](const Pending& pending) {
            if (pending.transfer.has_ended) check(pending);
            return pending.transfer.has_ended;
        });
        if (pending_.size() < n_before) {
            last_progress_ = Clock::now();
        } else {
            processes_.limit_silence(most_silent(), last_progress_, processes_.timeout());
        }
    }

    void check(const Pending& ended) {
        if (ended.received == nullptr) return;
        processes_.note_message(ended.process);
        if (ended.transfer.n_bytes != ended.n_bytes)
            fail_internal("rank {} waits for {} bytes, and got {} from process {}", rank(), ended.n_bytes,
                          ended.transfer.n_bytes, ended.process);
    }

    // Returns the process, among those waited for, that was heard of the longest time ago: others may wait for it too.
    int32_t most_silent() const {
        return std::ranges::min_element(
                   pending_, {},
                   [&](const Pending& pending) { return processes_.last_message(pending.process); })
            ->process;
    }

    Processes& processes_;
    const int32_t device_;
    Ticket last_ticket_ = 0;
    std::vector<Pending> pending_;
    std::vector<Transfer*> transfers_;  // of pending_
    Clock::time_point last_progress_;
};

}  // namespace

std::unique_ptr<runtime::Transport> make_remote_transport(Processes& processes, int32_t device) {
    return std::make_unique<RemoteTransport>(processes, device);
}

}  // namespace minim::ranks
