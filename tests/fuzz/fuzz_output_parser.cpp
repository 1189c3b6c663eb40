// SPDX-License-Identifier: Apache-2.0
// Any bytes as the output of a model: whole, in two parts and byte by byte it parses to the same, and complete calls have
// JSON objects as arguments. The first byte chooses the options.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "chat/output_parser.h"

namespace {

void require(bool condition) {
    if (!condition) std::abort();
}

using namespace minim::chat;

constexpr std::string_view k_tools = R"([{"name": "f", "parameters": {"properties": {"s": {"type": "string"},
    "i": {"type": "integer"}, "n": {"type": "number"}, "b": {"type": "boolean"}, "o": {"type": "object"},
    "u": {"type": ["string", "null", "integer"]}}}}, {"type": "function", "function": {"name": "g"}}])";

// Tools with values in values, for elements.
constexpr std::string_view k_nested_tools =
    R"([{"name": "f", "parameters": {"properties": {"s": {"type": "string"},
    "i": {"type": "integer"}, "l": {"type": "array", "items": {"type": "number"}}, "v": {},
    "o": {"type": "object", "properties": {"s": {"type": "string"}, "l": {"type": "array", "items": {"$ref": "#"}}}},
    "u": {"type": ["string", "null", "object"]}, "p": {"prefixItems": [{"type": "null"}], "items": {"type": "boolean"}},
    "m": {"type": "object", "additionalProperties": {"type": ["array", "object"]}}}}}, {"name": "g"}])";

minim::json::Value tools(bool any, const ParserOptions& options) {
    using minim::json::parse;
    static const minim::json::Value flat = parse(k_tools, "tools", minim::json::Source::argument);
    static const minim::json::Value nested = parse(k_nested_tools, "tools", minim::json::Source::argument);
    if (!any) return {};
    return options.family == Family::m3 ? nested : flat;
}

ParsedOutput sum_of(std::string_view bytes, bool any_tools, const ParserOptions& options, Finish finish,
                    size_t step) {
    OutputParser parser(tools(any_tools, options), options);
    ParsedOutput output;
    const auto add = [&] {
        for (size_t i = 0; i < parser.n_deltas(); ++i) {
            const OutputDelta& delta = parser.delta(i);
            if (delta.kind == OutputDelta::Kind::tool_call) {
                if (delta.has_name) output.calls.push_back({delta.name, {}});
                require(delta.index + 1 == static_cast<int32_t>(output.calls.size()));
                output.calls.back().arguments += delta.text;
                continue;
            }
            require(!delta.text.empty());
            auto& text = delta.kind == OutputDelta::Kind::reasoning ? output.reasoning : output.content;
            text = text.value_or("") + delta.text;
        }
    };
    for (size_t at = 0; at < bytes.size(); at += step) {
        parser.feed(bytes.substr(at, step));
        add();
    }
    output.finish = parser.finish(finish);
    add();
    if (parser.last_call_is_cut()) output.calls.pop_back();
    return output;
}

void require_equal(const ParsedOutput& a, const ParsedOutput& b) {
    require(a.content == b.content);
    require(a.reasoning == b.reasoning);
    require(a.finish == b.finish);
    require(a.calls.size() == b.calls.size());
    for (size_t i = 0; i < a.calls.size(); ++i) {
        require(a.calls[i].name == b.calls[i].name);
        require(a.calls[i].arguments == b.calls[i].arguments);
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    if (size == 0) return 0;
    const uint8_t choice = data[0];
    const ParserOptions options = {static_cast<ReasoningMode>(choice % 3), (choice & 16U) == 0,
                                   (choice & 128U) != 0 ? Family::m3 : Family::m2};
    const bool any_tools = (choice & 32U) == 0;
    const Finish finish = (choice & 64U) != 0 ? Finish::length : Finish::stop;
    const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);

    const ParsedOutput whole = parse_output(bytes, tools(any_tools, options), options, finish);
    for (const ParsedOutput::Call& call : whole.calls)
        require(minim::json::parse(call.arguments, "arguments", minim::json::Source::argument).is_object());
    require(any_tools || whole.calls.empty());
    require_equal(whole, sum_of(bytes, any_tools, options, finish, 1));
    require_equal(whole, sum_of(bytes, any_tools, options, finish, 2 + choice % 7));
    return 0;
}
