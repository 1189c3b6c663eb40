// SPDX-License-Identifier: Apache-2.0
#include "ranks/joined_transport.h"

#include <utility>
#include <vector>

namespace minim::ranks {
namespace {

using runtime::Transport;

class JoinedTransport final : public Transport {
  public:
    JoinedTransport(std::unique_ptr<Transport> local, std::unique_ptr<Transport> remote)
        : local_(std::move(local)),
          remote_(std::move(remote)),
          first_local_(remote_->rank() - local_->rank()) {}

    int32_t rank() const noexcept override { return remote_->rank(); }
    int32_t size() const noexcept override { return remote_->size(); }

    Ticket send(int32_t to, std::span<const std::byte> bytes) override {
        return is_local(to) ? local_->send(to - first_local_, bytes) * 2 : remote_->send(to, bytes) * 2 + 1;
    }

    Ticket receive(int32_t from, std::span<std::byte> bytes) override {
        return is_local(from) ? local_->receive(from - first_local_, bytes) * 2
                              : remote_->receive(from, bytes) * 2 + 1;
    }

    int64_t count_unfinished(std::span<const Ticket> tickets) override {
        local_tickets_.clear();
        remote_tickets_.clear();
        for (const Ticket ticket : tickets)
            (ticket % 2 == 0 ? local_tickets_ : remote_tickets_).push_back(ticket / 2);
        try {
            // Also without tickets of its own: it knows of errors of other processes, and its messages may be what a local rank
            // waits for.
            const int64_t n = remote_->count_unfinished(remote_tickets_);
            return n + local_->count_unfinished(local_tickets_);
        } catch (...) {
            withdraw(current_error());
            throw;
        }
    }

    void abandon(const Error& error) noexcept override {
        remote_->abandon(error);
        local_->abandon(error);
    }

    void throw_if_abandoned() const override {
        remote_->throw_if_abandoned();
        local_->throw_if_abandoned();
    }

  private:
    bool is_local(int32_t rank) const { return rank >= first_local_ && rank < first_local_ + local_->size(); }

    // Withdraws the local messages as well, with the error that has ended the others.
    void withdraw(const Error& error) noexcept {
        local_->abandon(error);
        try {
            local_->count_unfinished(local_tickets_);
        } catch (const Error&) {
            return;  // as intended
        }
    }

    const std::unique_ptr<Transport> local_;
    const std::unique_ptr<Transport> remote_;
    const int32_t first_local_;
    std::vector<Ticket> local_tickets_, remote_tickets_;
};

}  // namespace

std::unique_ptr<Transport> make_joined_transport(std::unique_ptr<Transport> local,
                                                 std::unique_ptr<Transport> remote) {
    return std::make_unique<JoinedTransport>(std::move(local), std::move(remote));
}

}  // namespace minim::ranks
