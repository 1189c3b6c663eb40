// SPDX-License-Identifier: Apache-2.0
// Tokenises a rendered conversation, with control over the special tokens in messages.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "chat/render.h"
#include "tokenizer/tokenizer.h"

namespace minim::model {

// exact and none: return the ids of the joined text. safe: recognises control tokens only in the template's own
// segments; everything else is tokenised as in the joined text, including pieces across segment borders, so that
// harmless messages give the same ids in both modes.
std::vector<int32_t> chat_tokens(const tokenizer::Tokenizer& tokenizer,
                                 std::span<const chat::Segment> segments, tokenizer::Specials specials);

// Returns the ids of the segments. Recognises added tokens only in the template's own segments.
std::vector<int32_t> chat_tokens_of_template(const tokenizer::Tokenizer& tokenizer,
                                             std::span<const chat::Segment> segments);

}  // namespace minim::model
