// SPDX-License-Identifier: Apache-2.0
// The forward pass of MiniMax-M2 written a second time: plain loops in double precision over the numbers of a TinyModel, without
// code from lib/. Switches plant the mistakes that other implementations have made.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "support/tiny_model.h"

namespace minim::test {

enum class Mistake {
    none,
    bias_dropped,
    gates_from_biased_scores,
    gates_not_renormalised,
    qk_norm_per_head,
    qk_norm_after_rotation,
    adjacent_pairs,
    rotation_of_whole_head,
    frequency_over_head_dim,
    gate_and_up_swapped,
    scale_by_rotary_dim,
    kv_head_by_modulo,
    larger_epsilon,
    no_final_norm,
    tied_head,
    not_causal,
    count_,
};

std::string_view name_of(Mistake mistake);

// Returns the logits of every position, [ids.size(), n_vocab]. `gate_scale` multiplies the normalised gates.
std::vector<double> plain_logits(const TinyModel& model, std::span<const int32_t> ids,
                                 Mistake mistake = Mistake::none, double gate_scale = 1.0);

}  // namespace minim::test
