// SPDX-License-Identifier: Apache-2.0
// Any bytes as a request's tools: calls of them in each chat format become an automaton, or the error says what is wrong with the
// list.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "base/json.h"
#include "constraint/automaton.h"
#include "constraint/tool_calls.h"
#include "require.h"
#include "share.h"
#include "support/tiny_tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace minim;
    using namespace minim::constraint;
    static const std::shared_ptr<const tokenizer::Tokenizer> tokenizers[] = {test::tiny_tokenizer(),
                                                                             test::tiny_m3_tokenizer()};
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    for (const auto& tokenizer : tokenizers) {
        fuzz::require_refusal(
            {Status::invalid, Status::unsupported}, "tools are good, wrong or not enforceable", [&] {
                const json::Value tools = json::parse(text, "tools", json::Source::argument);
                const Grammar grammar = grammar_of_tool_calls(tools, {"", size % 2 == 0}, *tokenizer);
                fuzz::require(make_automaton(grammar, 64, fuzz::k_share).n_states() > 0,
                              "an automaton has a state");
            });
    }
    return 0;
}
