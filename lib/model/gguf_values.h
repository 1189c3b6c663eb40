// SPDX-License-Identifier: Apache-2.0
// Values of GGUF metadata as the writers of such files store them: a number in any type that holds it exactly, a flag as 0 or 1,
// and one value for all layers also as an array with an entry for each layer.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "checkpoint/metadata.h"

namespace minim::model {

// All return nothing if there is no such key. They throw format for a value of another kind, and unsupported for an array whose
// entries differ, naming the key and the value.
std::optional<int64_t> whole_number(const checkpoint::Metadata& metadata, std::string_view key);
std::optional<double> number(const checkpoint::Metadata& metadata, std::string_view key);
std::optional<bool> flag(const checkpoint::Metadata& metadata, std::string_view key);

}  // namespace minim::model
