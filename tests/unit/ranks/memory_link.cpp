// SPDX-License-Identifier: Apache-2.0
#include "unit/ranks/memory_link.h"

#include <algorithm>
#include <deque>
#include <map>
#include <mutex>
#include <tuple>

#include "base/error.h"

namespace minim::test {
namespace {

using ranks::Transfer;

constexpr size_t k_max_eager_bytes = 4096;

struct MemoryMessage {
    std::vector<std::byte> bytes;
    uint64_t sender_handle = 0;  // 0: the sender does not wait
};

// What is between one process and another with one tag: messages or receivers, not both.
struct MemoryLane {
    struct Receiver {
        uint64_t handle;
        std::span<std::byte> bytes;
    };
    std::deque<MemoryMessage> messages;
    std::deque<Receiver> receivers;
};

struct MemoryRoom {
    std::mutex mutex;
    int32_t n = 0;
    Disturbance disturbance;
    std::map<std::tuple<int32_t, int32_t, int32_t>, MemoryLane> lanes;  // by sender, receiver, tag
    std::map<uint64_t, uint64_t> ended;                                 // bytes of transfers that have ended
    uint64_t n_handles = 0;

    // Brings together messages and receivers.
    void deliver(MemoryLane& lane) {
        while (!lane.messages.empty() && !lane.receivers.empty()) {
            const MemoryMessage& message = lane.messages.front();
            const MemoryLane::Receiver& receiver = lane.receivers.front();
            std::copy_n(message.bytes.begin(), std::min(message.bytes.size(), receiver.bytes.size()),
                        receiver.bytes.begin());
            ended[receiver.handle] = message.bytes.size();
            if (message.sender_handle != 0) ended[message.sender_handle] = message.bytes.size();
            lane.messages.pop_front();
            lane.receivers.pop_front();
        }
    }
};

class MemoryLink final : public ranks::Link {
  public:
    MemoryLink(std::shared_ptr<MemoryRoom> room, int32_t process)
        : room_(std::move(room)), process_(process) {}

    int32_t process() const noexcept override { return process_; }
    int32_t size() const noexcept override { return room_->n; }

    Transfer send(int32_t to, int32_t tag, std::span<const std::byte> bytes) override {
        const std::lock_guard lock(room_->mutex);
        MemoryMessage message = {{bytes.begin(), bytes.end()}, 0};
        Transfer transfer;
        if (bytes.size() > k_max_eager_bytes) {
            message.sender_handle = transfer.handle = ++room_->n_handles;
        } else {
            transfer.handle = ++room_->n_handles;
            room_->ended[transfer.handle] = bytes.size();
        }
        if (tag == room_->disturbance.tag) {
            if (room_->disturbance.drops) return transfer;
            for (std::byte& byte : message.bytes) byte ^= room_->disturbance.flips;
        }
        MemoryLane& lane = room_->lanes[{process_, to, tag}];
        lane.messages.push_back(std::move(message));
        room_->deliver(lane);
        return transfer;
    }

    Transfer receive(int32_t from, int32_t tag, std::span<std::byte> bytes) override {
        const std::lock_guard lock(room_->mutex);
        const Transfer transfer = {.handle = ++room_->n_handles};
        if (has_given_up_) return transfer;
        MemoryLane& lane = room_->lanes[{from, process_, tag}];
        lane.receivers.push_back({transfer.handle, bytes});
        room_->deliver(lane);
        return transfer;
    }

    void end_some(std::span<Transfer* const> transfers) override {
        const std::lock_guard lock(room_->mutex);
        for (Transfer* const transfer : transfers) {
            const auto ended = room_->ended.find(transfer->handle);
            if (transfer->has_ended || ended == room_->ended.end()) continue;
            transfer->has_ended = true;
            transfer->n_bytes = ended->second;
            room_->ended.erase(ended);
        }
    }

    std::optional<uint64_t> arrived(int32_t from, int32_t tag) override {
        const std::lock_guard lock(room_->mutex);
        const MemoryLane& lane = room_->lanes[{from, process_, tag}];
        if (lane.messages.empty()) return std::nullopt;
        return lane.messages.front().bytes.size();
    }

    // Nothing is written to receivers of this process any more.
    void give_up() noexcept override {
        const std::lock_guard lock(room_->mutex);
        has_given_up_ = true;
        for (auto& [key, lane] : room_->lanes)
            if (std::get<1>(key) == process_) lane.receivers.clear();
    }

  private:
    const std::shared_ptr<MemoryRoom> room_;
    const int32_t process_;
    bool has_given_up_ = false;  // guarded by the room's mutex
};

}  // namespace

std::vector<std::unique_ptr<ranks::Link>> connect_processes(int32_t n, const Disturbance& disturbance) {
    const auto room = std::make_shared<MemoryRoom>();
    room->n = n;
    room->disturbance = disturbance;
    std::vector<std::unique_ptr<ranks::Link>> links;
    links.reserve(n);
    for (int32_t process = 0; process < n; ++process)
        links.push_back(std::make_unique<MemoryLink>(room, process));
    return links;
}

}  // namespace minim::test
