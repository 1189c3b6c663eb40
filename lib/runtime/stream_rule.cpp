// SPDX-License-Identifier: Apache-2.0
#include "runtime/stream_rule.h"

#include <algorithm>

#include "backend/experts.h"
#include "base/checked.h"

namespace minim::runtime {
namespace {

// The most bytes of an area: large enough that starting a copy or a kernel costs little in comparison, small enough
// that the first chunk arrives soon.
constexpr uint64_t k_area_bytes = uint64_t{256} << 20;
constexpr uint64_t k_table_alignment = 256;  // of tables, for wide loads of a GPU

}  // namespace

StreamSpace stream_space(const StreamRule& rule, uint64_t expert_bytes, int64_t n_expert, uint64_t bytes) {
    StreamSpace space;
    const uint64_t table =
        align_up(static_cast<uint64_t>(n_expert) * sizeof(backend::ExpertPlace), k_table_alignment);
    const uint64_t area = std::min(bytes / 2 / StreamSpace::k_areas, k_area_bytes);
    if (!rule.is_on() || area <= table) return space;
    const auto fitting = static_cast<int64_t>((area - table) / expert_bytes);
    space.chunk_experts = std::min({fitting, rule.most_chunk_experts, n_expert});
    if (space.chunk_experts == 0) return space;
    space.data_bytes = static_cast<uint64_t>(space.chunk_experts) * expert_bytes;
    space.table_bytes = table;
    return space;
}

void choose_streamed(std::span<const int32_t> n_slots, const StreamRule& rule, std::vector<int32_t>& chosen) {
    const auto slots_of = [&](int32_t expert) { return static_cast<double>(n_slots[expert]); };
    chosen.clear();
    double of_host = 0.0;  // slots
    for (int32_t e = 0; e < static_cast<int32_t>(n_slots.size()); ++e) {
        if (slots_of(e) > 0.0 && slots_of(e) >= rule.break_even_slots) {
            chosen.push_back(e);
        } else {
            of_host += slots_of(e);
        }
    }
    // Experts with equal counts stay in their order, so that the choice depends on the slots alone.
    std::ranges::sort(chosen, [&](int32_t a, int32_t b) {
        return slots_of(a) != slots_of(b) ? slots_of(a) > slots_of(b) : a < b;
    });
    // A copy takes as long as break_even_slots slots of the host.
    while (!chosen.empty()) {
        const double with_one_more = of_host + slots_of(chosen.back());
        if (with_one_more >= static_cast<double>(chosen.size()) * rule.break_even_slots) return;
        of_host = with_one_more;
        chosen.pop_back();
    }
}

}  // namespace minim::runtime
