// SPDX-License-Identifier: Apache-2.0
// What the grammars of calls of both chat formats share: names, tags, and the limits of the work for a list of tools.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "constraint/grammar.h"
#include "constraint/schema_work.h"
#include "tokenizer/tokenizer.h"

namespace minim::constraint {

// Throws invalid if a tag of a call cannot hold a name, because the name is empty or has one of the characters.
void check_call_name(const std::string& name, std::string_view forbidden, const std::string& where);

// Returns a tag: as its token if the vocabulary has it, else as text.
Part tag_part(Grammar& grammar, const tokenizer::Tokenizer& tokenizer, std::string_view text);

// The work for the tools of a list. The limits of a tool are its own, as long as the tools do not need very much together.
class ToolsWork {
  public:
    void begin_tool();
    SchemaWork& of_tool() noexcept { return work_; }

  private:
    SchemaWork work_;       // of the last tool
    size_t n_members_ = 0;  // of the tools before it, as in SchemaWork
    size_t n_checked_ = 0;
    size_t n_states_ = 0;
};

}  // namespace minim::constraint
