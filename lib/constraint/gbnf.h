// SPDX-License-Identifier: Apache-2.0
// Grammars in GBNF, the notation of llama.cpp, which is also the EBNF of xgrammar and SGLang: rules `name ::= ...`, of which
// `root` is the whole answer.
#pragma once

#include <string_view>

#include "constraint/grammar.h"
#include "tokenizer/tokenizer.h"

namespace minim::constraint {

// Rules may refer to themselves in every place. `<name>` and `<[id]>` are added tokens of the tokenizer, which may be
// null: then there are none. Throws invalid, with line and rule, if the text is no such grammar, and unsupported beyond a
// limit.
Grammar grammar_of_gbnf(std::string_view text, const tokenizer::Tokenizer* tokenizer);

}  // namespace minim::constraint
