// SPDX-License-Identifier: Apache-2.0
#include "model/chat_tokens.h"

#include <string>

namespace minim::model {
namespace {

// Returns the ids of the segments. `specials`: the special tokens that are recognised in messages, and in the
// template's text between its added tokens.
std::vector<int32_t> encode_segments(const tokenizer::Tokenizer& tokenizer,
                                     std::span<const chat::Segment> segments, tokenizer::Specials specials) {
    std::vector<int32_t> ids;
    std::string text;  // since the last control token of the template
    for (const chat::Segment& segment : segments) {
        size_t begin = 0;
        while (!segment.is_user_text) {
            const auto match = tokenizer.find_added(segment.text, begin);
            if (!match) break;
            text.append(segment.text, begin, match->begin - begin);
            tokenizer.encode_append(text, specials, ids);
            text.clear();
            ids.push_back(match->id);
            begin = match->end;
        }
        text.append(segment.text, begin);
    }
    tokenizer.encode_append(text, specials, ids);
    return ids;
}

}  // namespace

std::vector<int32_t> chat_tokens(const tokenizer::Tokenizer& tokenizer,
                                 std::span<const chat::Segment> segments, tokenizer::Specials specials) {
    if (specials != tokenizer::Specials::safe) return tokenizer.encode(chat::join(segments), specials);
    return encode_segments(tokenizer, segments, tokenizer::Specials::safe);
}

std::vector<int32_t> chat_tokens_of_template(const tokenizer::Tokenizer& tokenizer,
                                             std::span<const chat::Segment> segments) {
    return encode_segments(tokenizer, segments, tokenizer::Specials::none);
}

}  // namespace minim::model
