// SPDX-License-Identifier: Apache-2.0
// Counts of the uses of each expert of a model, kept in a file from one run to the next, so that a cache of experts begins
// with the experts that are used most.
#pragma once

#include <string>
#include <vector>

#include "model/config.h"

namespace minim::model {

class Model;

// Use counts, decayed: [layer][expert]
using ExpertUses = std::vector<std::vector<float>>;

// Reads a profile. Throws not_found, io, and format if the file is not a profile (reason shape: a profile of a model
// with other layers or experts).
ExpertUses read_expert_profile(const std::string& path, const Config& config);

// Writes the counts of the model's caches; 0 for layers without one. An older file of that name is replaced once the new one is
// whole. Throws invalid for a model without a cache, not_found or io.
void write_expert_profile(const std::string& path, const Model& model);

}  // namespace minim::model
