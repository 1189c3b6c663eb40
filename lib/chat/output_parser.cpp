// SPDX-License-Identifier: Apache-2.0
#include "chat/output_parser.h"

#include <utility>

namespace minim::chat {
namespace {

using FamilyOutput = std::variant<TagOutput, ElementOutput>;

FamilyOutput output_of(json::Value tools, const ParserOptions& options, DeltaList& deltas) {
    if (options.family == Family::m3)
        return FamilyOutput(std::in_place_type<ElementOutput>, std::move(tools), options, deltas);
    return FamilyOutput(std::in_place_type<TagOutput>, std::move(tools), options, deltas);
}

}  // namespace

OutputParser::OutputParser(json::Value tools, const ParserOptions& options)
    : output_(output_of(std::move(tools), options, deltas_)) {}

void OutputParser::take_decoded() {
    std::visit([&](auto& output) { output.feed(decoded_); }, output_);
}

void OutputParser::feed(std::string_view bytes) {
    deltas_.clear();
    decoded_.clear();
    decoder_.push(bytes, decoded_);
    take_decoded();
}

Finish OutputParser::finish(Finish finish) {
    deltas_.clear();
    decoded_.clear();
    decoder_.finish(decoded_);
    take_decoded();
    const bool was_cut = finish == Finish::length;
    const bool cut_in_call = std::visit([&](auto& output) { return output.finish(was_cut); }, output_);
    is_finished_ = true;
    if (cut_in_call) return Finish::length;
    return deltas_.n_calls() > 0 ? Finish::tool_calls : finish;
}

ParsedOutput parse_output(std::string_view bytes, json::Value tools, const ParserOptions& options,
                          Finish finish) {
    ParsedOutput output;
    OutputParser parser(std::move(tools), options);
    const auto add = [&] {
        for (size_t i = 0; i < parser.n_deltas(); ++i) {
            const OutputDelta& delta = parser.delta(i);
            if (delta.kind == OutputDelta::Kind::tool_call) {
                if (delta.has_name) output.calls.push_back({delta.name, {}});
                output.calls.back().arguments += delta.text;
                continue;
            }
            auto& text = delta.kind == OutputDelta::Kind::reasoning ? output.reasoning : output.content;
            if (!text) text.emplace();
            *text += delta.text;
        }
    };
    parser.feed(bytes);
    add();
    output.finish = parser.finish(finish);
    add();
    if (parser.last_call_is_cut()) output.calls.pop_back();
    return output;
}

}  // namespace minim::chat
