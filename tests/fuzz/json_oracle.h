// SPDX-License-Identifier: Apache-2.0
// The readers of safetensors parse JSON themselves; what they accept, a JSON library must accept too.
#pragma once

#include <string_view>

#include <nlohmann/json.hpp>

#include "require.h"

namespace minim::fuzz {

// As that library tells, but for numbers beyond a double, which it refuses though JSON knows no largest one.
inline bool is_json(std::string_view text) {
    try {
        return !nlohmann::json::parse(text.begin(), text.end()).is_discarded();
    } catch (const nlohmann::json::out_of_range&) {
        return true;
    } catch (const nlohmann::json::parse_error&) {
        return false;
    }
}

inline void require_json(std::string_view text) {
    require(is_json(text), "accepted text is valid JSON");
}

}  // namespace minim::fuzz
