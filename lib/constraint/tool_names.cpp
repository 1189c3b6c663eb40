// SPDX-License-Identifier: Apache-2.0
#include "constraint/tool_names.h"

#include "base/error.h"

namespace minim::constraint {

void check_call_name(const std::string& name, std::string_view forbidden, const std::string& where) {
    if (name.empty() || name.find_first_of(forbidden) != std::string::npos)
        fail(Status::invalid, "{}: a tool call cannot hold the name '{}'", where, name);
}

Part tag_part(Grammar& grammar, const tokenizer::Tokenizer& tokenizer, std::string_view text) {
    const auto token = tokenizer.find(text);
    return token ? grammar.token(*token) : grammar.text(text);
}

void ToolsWork::begin_tool() {
    constexpr size_t k_max_tools = 8;  // tools that may all reach the limits
    n_members_ += work_.n_members;
    n_checked_ += work_.n_checked;
    n_states_ += work_.n_states;
    work_ = {};
    if (n_members_ > k_max_tools * SchemaWork::k_max_members) work_.n_members = SchemaWork::k_max_members;
    if (n_checked_ > k_max_tools * SchemaWork::k_max_checked) work_.n_checked = SchemaWork::k_max_checked;
    if (n_states_ > k_max_tools * SchemaWork::k_max_states) work_.n_states = SchemaWork::k_max_states;
}

}  // namespace minim::constraint
