// SPDX-License-Identifier: Apache-2.0
#include "output_reader.h"

#include <utility>

#include "minim/minim.hpp"

namespace server {

namespace {

minim_output_parser* make_parser(const OutputFormat& format) {
    if (!format.is_chat) return nullptr;
    minim_output_parser_params params = MINIM_OUTPUT_PARSER_PARAMS_INIT;
    params.reasoning = format.reasoning;
    params.starts_in_content = format.starts_in_reasoning ? 0 : 1;
    params.format = format.chat_format;
    params.tools = format.tools.empty() ? nullptr : format.tools.c_str();
    minim_output_parser* parser = nullptr;
    minim::detail::check(
        [&](minim_error* error) { return minim_output_parser_create(&params, &parser, error); });
    return parser;
}

void append(Delta delta, std::vector<Delta>& deltas) {
    if (delta.text.empty() && delta.name.empty()) return;
    const bool continues = !deltas.empty() && deltas.back().kind == delta.kind &&
                           deltas.back().call == delta.call && delta.name.empty();
    if (continues) {
        deltas.back().text += delta.text;
    } else {
        deltas.push_back(std::move(delta));
    }
}

bool is_cut(int32_t finish) {
    return finish != MINIM_FINISH_END && finish != MINIM_FINISH_STOP_TEXT;
}

}  // namespace

OutputReader::OutputReader(const OutputFormat& format)
    : parser_(make_parser(format), minim_output_parser_free) {}

void OutputReader::feed(std::string_view text, std::vector<Delta>& deltas) {
    if (text.empty()) return;
    if (!parser_) return append({Delta::Kind::content, 0, {}, std::string(text)}, deltas);
    size_t count = 0;
    minim::detail::check([&](minim_error* error) {
        return minim_output_parser_feed(parser_.get(), text.data(), text.size(), &count, error);
    });
    take(count, deltas);
}

const char* OutputReader::finish(int32_t finish, std::vector<Delta>& deltas) {
    if (parser_) {
        size_t count = 0;
        int32_t reason = finish;
        minim::detail::check([&](minim_error* error) {
            return minim_output_parser_finish(parser_.get(), finish, &count, &reason, error);
        });
        take(count, deltas);
        if (reason == MINIM_FINISH_TOOL_CALLS) return "tool_calls";
    }
    return is_cut(finish) ? "length" : "stop";
}

void OutputReader::take(size_t count, std::vector<Delta>& deltas) {
    for (size_t i = 0; i < count; ++i) {
        minim_output_delta delta = MINIM_OUTPUT_DELTA_INIT;
        minim::detail::check(
            [&](minim_error* error) { return minim_output_parser_delta(parser_.get(), i, &delta, error); });
        Delta taken;
        taken.text.assign(delta.text, delta.length);
        if (delta.kind == MINIM_DELTA_REASONING) taken.kind = Delta::Kind::reasoning;
        if (delta.kind == MINIM_DELTA_TOOL_CALL) {
            taken.kind = Delta::Kind::call;
            taken.call = delta.index;
            if (delta.name != nullptr) taken.name.assign(delta.name, delta.name_length);
        }
        append(std::move(taken), deltas);
    }
}

}  // namespace server
