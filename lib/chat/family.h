// SPDX-License-Identifier: Apache-2.0
// Which chat format a model has.
#pragma once

#include "chat/markup.h"
#include "tokenizer/tokenizer.h"

namespace minim::chat {

// Returns M3 if the vocabulary has the mark of its calls as an added token, else M2. M3's vocabulary has M2's tags too.
inline const Markup& markup_of(const tokenizer::Tokenizer& tokenizer) noexcept {
    return tokenizer.find(k_m3.mark) ? k_m3 : k_m2;
}

}  // namespace minim::chat
