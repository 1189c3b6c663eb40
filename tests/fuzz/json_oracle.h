// The readers of safetensors parse JSON themselves; what they accept, a JSON library must accept too.
#pragma once

#include <string_view>

#include <nlohmann/json.hpp>

#include "require.h"

namespace minim::fuzz {

inline void require_json(std::string_view text) {
    require(nlohmann::json::accept(text.begin(), text.end()), "accepted text is valid JSON");
}

}  // namespace minim::fuzz
