// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "minim/minim.hpp"
#include "options.h"

namespace cli {

// What an answer begins with, by its prompt.
enum class Beginning : uint8_t {
    content,
    reasoning,         // the prompt opens it
    as_model_decides,  // prompts of MiniMax-M3 in adaptive mode
};

struct ChatPrompt {
    std::vector<int32_t> ids;
    Beginning beginning = Beginning::content;
};

// Returns the prompt of a conversation, a JSON array of messages. With --reasoning-budget 0 its thought is empty.
// `specials`: MINIM_SPECIALS_* for the messages' texts.
ChatPrompt chat_prompt(const minim::Model& model, const Options& options, const std::string& messages,
                       int32_t specials);

}  // namespace cli
