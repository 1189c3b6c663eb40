// SPDX-License-Identifier: Apache-2.0
// Any bytes as a JSON Schema: it either becomes an automaton, and a text that follows it to an end is JSON,
// or the error says what is wrong with the schema.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/json.h"
#include "constraint/automaton.h"
#include "constraint/json_schema.h"
#include "constraint/positions.h"
#include "require.h"
#include "share.h"

namespace {

using namespace minim;
using namespace minim::constraint;
using minim::fuzz::require;

// Returns a text of the automaton, chosen by the bytes of `choices`, or an empty text if that text does not come to an end.
std::string some_text(const Automaton& automaton, std::string_view choices) {
    Positions positions(automaton);
    int32_t position = positions.start_of(automaton.start_rule);
    std::string text;
    for (size_t n = 0; n < 400; ++n) {
        if (positions.must_end(position) || (n > 100 && positions.may_end(position))) return text;
        const auto first = static_cast<uint8_t>(choices[n % choices.size()] + static_cast<char>(n));
        int32_t next = Positions::k_dead;
        for (unsigned i = 0; i < 256 && next == Positions::k_dead; ++i) {
            const auto byte = static_cast<uint8_t>(first + i);
            next = positions.step(position, automaton.symbol_of_byte[byte]);
            if (next != Positions::k_dead) text += static_cast<char>(byte);
        }
        require(next != Positions::k_dead, "what has not come to an end can go on");
        position = next;
    }
    return "";
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    std::string found;
    fuzz::require_refusal(
        {Status::invalid, Status::unsupported}, "a schema is good, wrong or not enforceable", [&] {
            const json::Value schema = json::parse(text, "schema", json::Source::argument);
            found = some_text(make_automaton(grammar_of_schema(schema), 64, fuzz::k_share), text);
        });
    if (found.empty()) return 0;
    try {
        json::parse(found, "answer", json::Source::argument);
    } catch (const Error& error) {
        // JSON's numbers have no largest value; a tree holds doubles.
        require(std::string_view(error.what()).find("number out of range") != std::string_view::npos,
                "a text that follows a schema is JSON");
    }
    return 0;
}
