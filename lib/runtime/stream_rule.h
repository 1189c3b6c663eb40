// SPDX-License-Identifier: Apache-2.0
// Decides when experts that are not on a layer's device are copied there for one step instead of being computed by the
// host.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace minim::runtime {

struct StreamRule {
    // The number of slots for which copying an expert takes as long as computing them on the host: bytes of an expert / bandwidth
    // of the link / seconds of the host for a slot. An expert with fewer slots is never copied.
    double break_even_slots = std::numeric_limits<double>::infinity();
    // The most experts of a chunk. Two chunks are on the device at a time.
    int64_t most_chunk_experts = std::numeric_limits<int64_t>::max();

    // False: nothing is ever copied.
    bool is_on() const noexcept { return break_even_slots < std::numeric_limits<double>::infinity(); }
    // Returns whether a step of n rows may copy experts: an expert has at most one slot for each row.
    bool allows(int64_t n) const noexcept { return n > 0 && static_cast<double>(n) >= break_even_slots; }
    bool operator==(const StreamRule&) const = default;
};

// The areas of a device for experts that are copied for a step: two areas, each for a chunk and its table.
struct StreamSpace {
    static constexpr uint64_t k_areas = 2;
    int64_t chunk_experts = 0;  // 0: no room, or nothing is copied
    uint64_t data_bytes = 0;    // of a chunk
    uint64_t table_bytes = 0;

    uint64_t device_bytes() const noexcept { return k_areas * (data_bytes + table_bytes); }
};
// Returns areas that take at most half of `bytes`, for experts of expert_bytes at most and n_expert of them a layer.
StreamSpace stream_space(const StreamRule& rule, uint64_t expert_bytes, int64_t n_expert, uint64_t bytes);

// Chooses the experts to copy, those with most slots first. n_slots: the slots of each expert, 0 for experts on the
// device. Begins with all experts that have at least break_even_slots. Then gives the expert with the fewest slots back
// to the host, as long as the host, with it, still ends before the copies would. So copies and the host end at about
// the same time. `chosen` needs capacity for all experts.
void choose_streamed(std::span<const int32_t> n_slots, const StreamRule& rule, std::vector<int32_t>& chosen);

}  // namespace minim::runtime
