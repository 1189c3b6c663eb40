// SPDX-License-Identifier: Apache-2.0
#include "runtime/group_channel.h"

#include <algorithm>
#include <vector>

namespace minim::runtime {

void TransportChannel::exchange(std::span<const std::byte> own, std::span<std::byte> all) {
    std::vector<Transport::Ticket> tickets;
    for (int32_t r = 0; r < size(); ++r) {
        const std::span<std::byte> theirs = all.subspan(static_cast<size_t>(r) * own.size(), own.size());
        if (r == rank()) {
            std::ranges::copy(own, theirs.begin());
        } else {
            tickets.push_back(transport_.receive(r, theirs));
            tickets.push_back(transport_.send(r, own));
        }
    }
    transport_.wait(tickets);
}

}  // namespace minim::runtime
