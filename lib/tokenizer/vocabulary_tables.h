// SPDX-License-Identifier: Apache-2.0
// Builds a tokenizer's tables from a vocabulary and refuses vocabularies that are inconsistent: they come
// from files. Every error is a format error that names the token, merge or id at fault.
#pragma once

#include <cstdint>
#include <vector>

#include "tokenizer/added_tokens.h"
#include "tokenizer/byte_pair_encoder.h"
#include "tokenizer/vocabulary.h"

namespace minim::tokenizer {

// Checks that each token has one known type and that every special id is a row of the table. The functions below rely on it.
void check_rows(const Vocabulary& vocabulary);

// Builds the encoder: needs a token for each of the 256 bytes, merges of tokens, and no duplicates. A merge whose result is not
// a token (the vocabulary was cut down) is left out with a warning: its parts stay separate, as in other engines.
BytePairEncoder make_encoder(const Vocabulary& vocabulary, const Logger& logger);

// Returns all added tokens, or only the user-defined ones, each in its pass.
AddedTokenPasses make_passes(const Vocabulary& vocabulary, bool user_defined_only);

// Returns eos, eot, eom and the extra ids, sorted and without duplicates. Warns if generation_config does not list eos or
// eos is not the text that ends a MiniMax-M2 message.
std::vector<int32_t> find_eog_ids(const Vocabulary& vocabulary, const Logger& logger);

}  // namespace minim::tokenizer
