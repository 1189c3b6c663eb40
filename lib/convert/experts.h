// SPDX-License-Identifier: Apache-2.0
// Models with fewer experts: which experts of each layer stay, and the tensors cut to them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "convert/importance.h"
#include "convert/source.h"

namespace minim::convert {

// The experts of each layer that stay, in ascending order, as many in each; none of leading layers without experts.
struct KeptExperts {
    std::vector<std::vector<int64_t>> layers;
    int64_t n_before = 0;

    int64_t n_kept() const { return layers.empty() ? 0 : std::ssize(layers.back()); }
    std::string text() const;  // "154 of 256"
};

// `number_or_file`: a number of experts, of those with the largest mean of gate * norm of the output in the importance data; experts
// that no row reached go first, and of equal ones the later. Or the path of a JSON file, {"layers": [[ids], ...]}, with [] for a layer
// without experts. Throws invalid for numbers that the model does not have, fewer experts than a token uses, and importance data without
// these norms; format for a file that says something else.
KeptExperts choose_experts(const std::string& number_or_file, const Source& source,
                           const Importance* importance);

// Cuts the stacks of experts, the rows of routers and their biases. The source then says which experts it has.
void cut_experts(const KeptExperts& kept, Source& source);

}  // namespace minim::convert
