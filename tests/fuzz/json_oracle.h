// SPDX-License-Identifier: Apache-2.0
// The readers of safetensors parse JSON themselves; what they accept, a JSON library must accept too.
#pragma once

#include <string_view>

#include <nlohmann/json.hpp>

#include "require.h"

namespace minim::fuzz {

// Returns whether that library accepts the text. Numbers beyond a double count as valid: the library refuses them, but JSON has
// no largest number.
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
