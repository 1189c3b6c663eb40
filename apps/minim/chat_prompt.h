// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "minim/minim.hpp"
#include "options.h"

namespace cli {

struct ChatPrompt {
    std::vector<int32_t> ids;
    bool opens_thought = false;  // the answer begins inside a block of reasoning
};

// Returns the prompt of a conversation, a JSON array of messages. With --reasoning-budget 0 its thought is empty.
// `specials`: MINIM_SPECIALS_* for the messages' texts.
ChatPrompt chat_prompt(const minim::Model& model, const Options& options, const std::string& messages,
                       int32_t specials);

}  // namespace cli
