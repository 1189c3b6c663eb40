// SPDX-License-Identifier: Apache-2.0
// The property that every tokenizer must have: decoding gives the text back, even with markup and bytes that are not UTF-8.
#pragma once

#include <string>

#include "require.h"
#include "tokenizer/tokenizer.h"

namespace minim::fuzz {

inline void require_text_comes_back(const tokenizer::Tokenizer& tokenizer) {
    const std::string text = "a b\n[e~[ \xF0\x9F\x90\xB8\xFF";
    require(tokenizer.decode_bytes(tokenizer.encode(text, tokenizer::Specials::exact), false) == text,
            "text comes back");
}

}  // namespace minim::fuzz
