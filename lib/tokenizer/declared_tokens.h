// SPDX-License-Identifier: Apache-2.0
// The tokens that tokenizer_config.json declares. Tools that add a token often write it there alone; transformers then adds it to the
// tokenizer when it opens the folder.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "tokenizer/vocabulary.h"

namespace minim::tokenizer {

struct DeclaredToken {
    std::string text;
    bool is_special = true;
    bool is_normalized = false;
    bool has_flags = false;  // of added_tokens_decoder: the flags replace those of tokenizer.json
    int64_t id = -1;         // as declared; -1: none
};

// Returns the tokens in the order in which transformers adds them: added_tokens_decoder by id, then eos_token and its like, then
// additional_special_tokens and extra_special_tokens. Throws format for a member of another kind, and unsupported for a token that
// takes the spaces or letters beside it into account.
std::vector<DeclaredToken> declared_tokens(const json::Value& config);

// Adds the tokens that the vocabulary does not have at its end, up to `n_rows` rows (0: any number). Says in the log what cannot be
// done as declared.
void add_declared(const std::vector<DeclaredToken>& declared, int64_t n_rows, Vocabulary& vocabulary,
                  const Logger& logger);

}  // namespace minim::tokenizer
