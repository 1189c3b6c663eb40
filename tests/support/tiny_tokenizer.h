// SPDX-License-Identifier: Apache-2.0
// The bundled model's tokenizer, and one for the chat format of M3.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "support/files.h"
#include "tokenizer/tokenizer.h"

namespace minim::test {

inline tokenizer::Vocabulary tiny_vocabulary() {
    const std::string folder = MINIM_TEST_DATA "/tokenizer/minim-tiny/";
    return tokenizer::vocabulary_from_json(text_of(folder + "tokenizer.json"),
                                           text_of(folder + "tokenizer_config.json"), "", Logger());
}

inline std::shared_ptr<const tokenizer::Tokenizer> tiny_tokenizer() {
    return std::make_shared<const tokenizer::Tokenizer>(tiny_vocabulary(), tokenizer::PieceRules::model,
                                                        Logger());
}

// Returns the same tokenizer with the markup of M3, as its vocabulary is that of M2 with more added tokens. The tags of a block of
// calls may be tokens too.
inline std::shared_ptr<const tokenizer::Tokenizer> tiny_m3_tokenizer(bool has_block_tokens = true) {
    tokenizer::Vocabulary vocabulary = tiny_vocabulary();
    std::vector<std::string> added = {"<mm:think>", "</mm:think>", "]<]minimax[>["};
    if (has_block_tokens) added.insert(added.begin(), {"<tool_call>", "</tool_call>"});
    for (const std::string& text : added) {
        vocabulary.tokens.push_back(text);
        vocabulary.types.push_back(tokenizer::TokenType::user_defined);
    }
    return std::make_shared<const tokenizer::Tokenizer>(std::move(vocabulary), tokenizer::PieceRules::model,
                                                        Logger());
}

}  // namespace minim::test
