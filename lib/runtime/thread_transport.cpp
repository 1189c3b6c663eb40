// SPDX-License-Identifier: Apache-2.0
#include "runtime/thread_transport.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <mutex>
#include <optional>

namespace minim::runtime {
namespace {

// The messages from one rank to another. The mutex guards the deque, and the bytes of messages in it: a sender that withdraws its
// messages waits until nobody copies from them.
struct Channel {
    std::mutex mutex;
    std::deque<std::span<const std::byte>> sent;  // not received yet
    // Counts of all messages so far; the number of a message is its ticket's.
    std::atomic<uint64_t> n_sent = 0;
    std::atomic<uint64_t> n_received = 0;
};

struct Room {
    explicit Room(int32_t n) : n_ranks(n), channels(n * n) {}

    Channel& between(int32_t from, int32_t to) { return channels[from * n_ranks + to]; }

    const int32_t n_ranks;
    std::vector<Channel> channels;
    std::atomic<bool> is_abandoned = false;
    std::mutex mutex;
    std::optional<Error> error;  // set before is_abandoned
};

class ThreadTransport final : public Transport {
  public:
    ThreadTransport(std::shared_ptr<Room> room, int32_t rank) : room_(std::move(room)), rank_(rank) {}
    ~ThreadTransport() override { withdraw(); }

    int32_t rank() const noexcept override { return rank_; }
    int32_t size() const noexcept override { return room_->n_ranks; }

    Ticket send(int32_t to, std::span<const std::byte> bytes) override {
        Channel& channel = room_->between(rank_, to);
        {
            const std::lock_guard lock(channel.mutex);
            channel.sent.push_back(bytes);
        }
        const uint64_t number = channel.n_sent.fetch_add(1, std::memory_order_release) + 1;
        pending_.push_back({++last_ticket_, to, true, number, {}});
        return last_ticket_;
    }

    Ticket receive(int32_t from, std::span<std::byte> bytes) override {
        pending_.push_back({++last_ticket_, from, false, 0, bytes});
        return last_ticket_;
    }

    int64_t count_unfinished(std::span<const Ticket> tickets) override {
        try {
            end_some();
            const int64_t n = std::ranges::count_if(pending_, [&](const Pending& pending) {
                return std::ranges::find(tickets, pending.ticket) != tickets.end();
            });
            if (n > 0) throw_if_abandoned();
            return n;
        } catch (...) {
            withdraw();
            throw;
        }
    }

    void throw_if_abandoned() const override {
        if (room_->is_abandoned.load(std::memory_order_acquire)) throw_abandoned();
    }

    void abandon(const Error& error) noexcept override {
        const std::lock_guard lock(room_->mutex);
        if (!room_->error) room_->error.emplace(error);
        room_->is_abandoned.store(true, std::memory_order_release);
    }

  private:
    struct Pending {
        Ticket ticket;
        int32_t peer;
        bool is_send;
        uint64_t number;             // of the message in its channel, from 1; of a send
        std::span<std::byte> bytes;  // of a receive
    };

    // Removes the messages that have ended. Receives from one rank end in the order in which they were posted.
    void end_some() {
        size_t n_left = 0;
        for (const Pending& pending : pending_) {
            const auto is_before = [&](const Pending& other) {
                return !other.is_send && other.peer == pending.peer;
            };
            const bool is_behind =
                !pending.is_send &&
                std::any_of(pending_.begin(), pending_.begin() + static_cast<ptrdiff_t>(n_left), is_before);
            if (is_behind || !end(pending)) pending_[n_left++] = pending;
        }
        pending_.resize(n_left);
    }

    // Returns whether a message has ended.
    bool end(const Pending& pending) {
        if (pending.is_send) {
            const Channel& channel = room_->between(rank_, pending.peer);
            return channel.n_received.load(std::memory_order_acquire) >= pending.number;
        }
        Channel& channel = room_->between(pending.peer, rank_);
        const uint64_t n_received = channel.n_received.load(std::memory_order_relaxed);
        if (channel.n_sent.load(std::memory_order_acquire) == n_received) return false;
        const std::lock_guard lock(channel.mutex);
        if (channel.sent.empty()) return false;  // withdrawn
        const std::span<const std::byte> from = channel.sent.front();
        if (from.size() != pending.bytes.size())
            fail_internal("rank {} has sent {} bytes, and rank {} waits for {}", pending.peer, from.size(),
                          rank_, pending.bytes.size());
        if (!from.empty()) std::memcpy(pending.bytes.data(), from.data(), from.size());
        channel.sent.pop_front();
        channel.n_received.store(n_received + 1, std::memory_order_release);
        return true;
    }

    void withdraw() noexcept {
        for (int32_t to = 0; to < room_->n_ranks; ++to) {
            Channel& channel = room_->between(rank_, to);
            const std::lock_guard lock(channel.mutex);
            channel.sent.clear();
        }
        pending_.clear();
    }

    [[noreturn]] void throw_abandoned() const {
        const std::lock_guard lock(room_->mutex);
        throw Error(*room_->error);
    }

    const std::shared_ptr<Room> room_;
    const int32_t rank_;
    Ticket last_ticket_ = 0;
    std::vector<Pending> pending_;
};

}  // namespace

std::vector<std::unique_ptr<Transport>> connect_threads(int32_t n_ranks) {
    const auto room = std::make_shared<Room>(n_ranks);
    std::vector<std::unique_ptr<Transport>> ends;
    ends.reserve(n_ranks);
    for (int32_t rank = 0; rank < n_ranks; ++rank)
        ends.push_back(std::make_unique<ThreadTransport>(room, rank));
    return ends;
}

}  // namespace minim::runtime
