// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <utility>

#include "base/json.h"
#include "chat/output_parser.h"
#include "handles.h"
#include "structs.h"
#include "texts.h"

using namespace minim;
using namespace minim::capi;

namespace {

static_assert(static_cast<int>(chat::ReasoningMode::none) == MINIM_REASONING_NONE);
static_assert(static_cast<int>(chat::OutputDelta::Kind::tool_call) == MINIM_DELTA_TOOL_CALL);

chat::ReasoningMode mode_of(int32_t reasoning) {
    if (reasoning < MINIM_REASONING_SPLIT || reasoning > MINIM_REASONING_NONE)
        fail(Status::invalid, "reasoning is {}; split (0), append_think (1) and none (2) are known",
             reasoning);
    return static_cast<chat::ReasoningMode>(reasoning);
}

static_assert(static_cast<int>(chat::Family::m3) == MINIM_CHAT_FORMAT_M3);

chat::Family family_of(int32_t format) {
    if (format != MINIM_CHAT_FORMAT_M2 && format != MINIM_CHAT_FORMAT_M3)
        fail(Status::invalid, "format is {}; M2 (0) and M3 (1) are known", format);
    return static_cast<chat::Family>(format);
}

chat::ParserOptions options_of(const minim_output_parser_params& params) {
    return {mode_of(params.reasoning), !flag(params.starts_in_content, "starts_in_content"),
            family_of(params.format)};
}

minim_output_parser_params given_params(const minim_output_parser_params* params) {
    return params_of(params, "minim_output_parser_params", offsetof(minim_output_parser_params, format));
}

json::Value tools_of(const minim_output_parser_params& params) {
    const std::string_view tools = optional_text(params.tools);
    return tools.empty() ? json::Value{} : json::parse(tools, "tools", json::Source::argument);
}

chat::Finish finish_of(int32_t finish) {
    switch (finish) {
        case MINIM_FINISH_END:
        case MINIM_FINISH_STOP_TEXT:
            return chat::Finish::stop;
        case MINIM_FINISH_LENGTH:
        case MINIM_FINISH_CONTEXT_FULL:
        case MINIM_FINISH_STOPPED:
        case MINIM_FINISH_TIMEOUT:
        case MINIM_FINISH_LOOP:
            return chat::Finish::length;
        default:
            fail(Status::invalid,
                 "finish is {}; MINIM_FINISH_END (1) to MINIM_FINISH_TIMEOUT (6) and MINIM_FINISH_LOOP (8) "
                 "end an output",
                 finish);
    }
}

int32_t reason_of(chat::Finish parsed, int32_t finish) {
    return parsed == chat::Finish::tool_calls ? MINIM_FINISH_TOOL_CALLS : finish;
}

}  // namespace

minim_status minim_output_parser_create(const minim_output_parser_params* params, minim_output_parser** out,
                                        minim_error* err) {
    return guard(err, [&] {
        required(out, "out") = nullptr;
        const auto known = given_params(params);
        *out = new minim_output_parser{{tools_of(known), options_of(known)}};
    });
}

minim_status minim_output_parser_feed(minim_output_parser* parser, const char* text, size_t length,
                                      size_t* n_deltas, minim_error* err) {
    return guard(err, [&] {
        minim_output_parser& of = required(parser, "parser");
        const Use use(of);
        required(n_deltas, "n_deltas");
        const std::string_view bytes = text_argument(text, length, "text");
        if (of.parser.is_finished())
            fail(Status::invalid, "the output has ended: minim_output_parser_finish was called");
        of.parser.feed(bytes);
        *n_deltas = of.parser.n_deltas();
    });
}

minim_status minim_output_parser_finish(minim_output_parser* parser, int32_t finish, size_t* n_deltas,
                                        int32_t* finish_reason, minim_error* err) {
    return guard(err, [&] {
        minim_output_parser& of = required(parser, "parser");
        const Use use(of);
        required(n_deltas, "n_deltas");
        const chat::Finish ending = finish_of(finish);
        if (of.parser.is_finished())
            fail(Status::invalid, "the output has ended: minim_output_parser_finish was called");
        const int32_t reason = reason_of(of.parser.finish(ending), finish);
        *n_deltas = of.parser.n_deltas();
        if (finish_reason != nullptr) *finish_reason = reason;
    });
}

minim_status minim_output_parser_delta(minim_output_parser* parser, size_t index, minim_output_delta* out,
                                       minim_error* err) {
    return guard(err, [&] {
        minim_output_parser& of = required(parser, "parser");
        const Use use(of);
        if (index >= of.parser.n_deltas())
            fail(Status::invalid, "delta {} does not exist: the last call brought {}", index,
                 of.parser.n_deltas());
        const chat::OutputDelta& delta = of.parser.delta(index);
        minim_output_delta result = MINIM_OUTPUT_DELTA_INIT;
        result.kind = static_cast<int32_t>(delta.kind);
        result.index = delta.index;
        if (delta.has_name) {
            result.name = delta.name.data();
            result.name_length = delta.name.size();
        }
        result.text = delta.text.data();
        result.length = delta.text.size();
        result_to(out, "minim_output_delta", result);
    });
}

void minim_output_parser_free(minim_output_parser* parser) {
    release(parser);
}

minim_status minim_output_parse(const minim_output_parser_params* params, const char* text, size_t length,
                                int32_t finish, minim_output** out, minim_error* err) {
    return guard(err, [&] {
        required(out, "out") = nullptr;
        const auto known = given_params(params);
        const std::string_view bytes = text_argument(text, length, "text");
        chat::ParsedOutput output =
            chat::parse_output(bytes, tools_of(known), options_of(known), finish_of(finish));
        const int32_t reason = reason_of(output.finish, finish);
        *out = new minim_output{std::move(output), reason};
    });
}

minim_status minim_output_get_info(const minim_output* output, minim_output_info* out, minim_error* err) {
    return guard(err, [&] {
        const minim_output& of = required(output, "output");
        minim_output_info info = MINIM_OUTPUT_INFO_INIT;
        info.finish_reason = of.finish_reason;
        if (of.output.content) {
            info.content = of.output.content->c_str();
            info.content_length = of.output.content->size();
        }
        if (of.output.reasoning) {
            info.reasoning = of.output.reasoning->c_str();
            info.reasoning_length = of.output.reasoning->size();
        }
        info.n_tool_calls = of.output.calls.size();
        result_to(out, "minim_output_info", info);
    });
}

minim_status minim_output_get_tool_call(const minim_output* output, size_t index, minim_tool_call* out,
                                        minim_error* err) {
    return guard(err, [&] {
        const auto& calls = required(output, "output").output.calls;
        if (index >= calls.size())
            fail(Status::invalid, "tool call {} does not exist: the output has {}", index, calls.size());
        const chat::ParsedOutput::Call& call = calls[index];
        minim_tool_call result = MINIM_TOOL_CALL_INIT;
        result.name = call.name.c_str();
        result.name_length = call.name.size();
        result.arguments = call.arguments.c_str();
        result.arguments_length = call.arguments.size();
        result_to(out, "minim_tool_call", result);
    });
}

void minim_output_free(minim_output* output) {
    delete output;
}
