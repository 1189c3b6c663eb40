// A rendered conversation as token ids, with a say in what message text may contain.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "chat/render.h"
#include "tokenizer/tokenizer.h"

namespace minim::model {

// exact and none: the ids of the joined text. safe: control tokens are recognised in the template's own
// segments only; everything else is tokenised as in the joined text, pieces across segment borders included,
// so that harmless messages give the same ids in both modes.
std::vector<int32_t> chat_tokens(const tokenizer::Tokenizer& tokenizer,
                                 std::span<const chat::Segment> segments, tokenizer::Specials specials);

// Added tokens are recognised in the template's own segments only; in messages none is.
std::vector<int32_t> chat_tokens_of_template(const tokenizer::Tokenizer& tokenizer,
                                             std::span<const chat::Segment> segments);

}  // namespace minim::model
