// Any bytes as a request's tools: calls of them become an automaton, or the error says what is wrong with the list.
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/log.h"
#include "constraint/automaton.h"
#include "constraint/tool_calls.h"
#include "require.h"
#include "tokenizer/tokenizer.h"

namespace {

using namespace minim;
using namespace minim::constraint;
using minim::fuzz::require;

// The bundled model's, whose calls have tokens of their own.
const tokenizer::Tokenizer& tiny_tokenizer() {
    static const tokenizer::Tokenizer tokenizer = [] {
        std::ifstream file(MINIM_TEST_DATA "/tokenizer/minim-tiny/tokenizer.json", std::ios::binary);
        require(static_cast<bool>(file), "the tokenizer of the tests is there");
        const std::string json(std::istreambuf_iterator<char>(file), {});
        return tokenizer::Tokenizer(tokenizer::vocabulary_from_json(json, "", "", Logger()),
                                    tokenizer::PieceRules::model, Logger());
    }();
    return tokenizer;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    for (const bool is_single : {true, false}) {
        fuzz::require_refusal(
            {Status::invalid, Status::unsupported}, "tools are good, wrong or not enforceable", [&] {
                const json::Value tools = json::parse(text, "tools", json::Source::argument);
                const Grammar grammar = grammar_of_tool_calls(tools, {"", is_single}, tiny_tokenizer());
                require(make_automaton(grammar, 64).n_states() > 0, "an automaton has a state");
            });
    }
    return 0;
}
