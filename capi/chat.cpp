// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <span>

#include "chat/family.h"
#include "handles.h"
#include "model/chat_tokens.h"
#include "structs.h"
#include "texts.h"

using namespace minim;
using namespace minim::capi;

namespace {

chat::RenderOptions options_of(const minim_chat_params& params) {
    chat::RenderOptions options;
    switch (params.null_content) {
        case MINIM_NULL_CONTENT_TEMPLATE:
            break;
        case MINIM_NULL_CONTENT_EMPTY:
            options.null_content_is_empty = true;
            break;
        default:
            fail(Status::invalid, "null_content is {}; template (0) and empty (1) are known",
                 params.null_content);
    }
    options.thinking_off = flag(params.thinking_off, "thinking_off");
    options.continue_final_message = flag(params.continue_final_message, "continue_final_message");
    return options;
}

bool has_tools(const minim_chat_params& params) {
    const std::string_view tools = optional_text(params.tools);
    return !tools.empty() && tools != "null" && tools != "[]";
}

std::vector<chat::Segment> rendered(const minim_model* model, const char* messages,
                                    const minim_chat_params& params) {
    const OpenModel& open = required(model, "model").open;
    const chat::Template& chat_template =
        open.model->text().chat_templates().find(optional_text(params.template_name), has_tools(params));
    std::vector<std::string> unread;
    chat::RenderOptions options = options_of(params);
    options.unread_variables = &unread;
    options.family = chat::markup_of(open.model->text().tokenizer()).family;
    std::vector<chat::Segment> segments =
        chat::render(chat_template, &required(messages, "messages"), optional_text(params.tools),
                     optional_text(params.kwargs), options);
    for (const std::string& name : unread)
        open.runtime->log.warning("the chat template does not use the variable '{}': it has no effect", name);
    return segments;
}

minim_chat_params given_params(const minim_chat_params* params) {
    return params_of(params, "minim_chat_params", offsetof(minim_chat_params, thinking_off));
}

minim_chat_params params_with(const char* tools, const char* kwargs) {
    minim_chat_params params = MINIM_CHAT_PARAMS_INIT;
    params.tools = tools;
    params.kwargs = kwargs;
    return params;
}

void render_to(const minim_model* model, const char* messages, const minim_chat_params& params,
               minim_text** out) {
    *out = new minim_text{chat::join(rendered(model, messages, params))};
}

void tokenize_to(const minim_model* model, const char* messages, const minim_chat_params& params,
                 int32_t specials, minim_tokens** out) {
    const bool of_template = specials == MINIM_SPECIALS_TEMPLATE;
    const tokenizer::Specials user_specials = of_template ? tokenizer::Specials::none : specials_of(specials);
    const std::vector<chat::Segment> segments = rendered(model, messages, params);
    const tokenizer::Tokenizer& tokenizer = model->model().text().tokenizer();
    *out = new minim_tokens{of_template ? model::chat_tokens_of_template(tokenizer, segments)
                                        : model::chat_tokens(tokenizer, segments, user_specials)};
}

// Returns whether a prompt ends in the token `tag`, or in that and white space.
bool ends_in(std::string_view tag, const tokenizer::Tokenizer& tokenizer, std::span<const int32_t> prompt) {
    const auto is_space = [&](int32_t id) {
        return std::ranges::all_of(tokenizer.token_bytes(id), chat::markup::is_space);
    };
    while (!prompt.empty() && is_space(prompt.back())) prompt = prompt.first(prompt.size() - 1);
    return !prompt.empty() && tokenizer.find(tag) == prompt.back();
}

}  // namespace

minim_status minim_chat_render(const minim_model* model, const char* messages, const char* tools,
                               const char* kwargs, minim_text** out, minim_error* err) {
    return guard(err, [&] {
        required(out, "out") = nullptr;
        render_to(model, messages, params_with(tools, kwargs), out);
    });
}

minim_status minim_chat_tokenize(const minim_model* model, const char* messages, const char* tools,
                                 const char* kwargs, int32_t specials, minim_tokens** out, minim_error* err) {
    return guard(err, [&] {
        required(out, "out") = nullptr;
        tokenize_to(model, messages, params_with(tools, kwargs), specials, out);
    });
}

minim_status minim_chat_render_with(const minim_model* model, const char* messages,
                                    const minim_chat_params* params, minim_text** out, minim_error* err) {
    return guard(err, [&] {
        required(out, "out") = nullptr;
        render_to(model, messages, given_params(params), out);
    });
}

minim_status minim_chat_tokenize_with(const minim_model* model, const char* messages,
                                      const minim_chat_params* params, int32_t specials, minim_tokens** out,
                                      minim_error* err) {
    return guard(err, [&] {
        required(out, "out") = nullptr;
        tokenize_to(model, messages, given_params(params), specials, out);
    });
}

minim_status minim_chat_opens_thinking(const minim_model* model, const int32_t* prompt, size_t count,
                                       int32_t* opens, minim_error* err) {
    return guard(err, [&] {
        required(opens, "opens") = 0;
        const tokenizer::Tokenizer& tokenizer = required(model, "model").model().text().tokenizer();
        const std::span<const int32_t> ids = ids_argument(prompt, count, "prompt");
        *opens = ends_in(chat::markup_of(tokenizer).think_open, tokenizer, ids) ? 1 : 0;
    });
}

minim_status minim_chat_may_reason(const minim_model* model, const int32_t* prompt, size_t count,
                                   int32_t* may_reason, minim_error* err) {
    return guard(err, [&] {
        required(may_reason, "may_reason") = 0;
        const tokenizer::Tokenizer& tokenizer = required(model, "model").model().text().tokenizer();
        const std::span<const int32_t> ids = ids_argument(prompt, count, "prompt");
        const chat::Markup& markup = chat::markup_of(tokenizer);
        if (markup.family != chat::Family::m3) return;  // prompts of M2 decide it
        *may_reason =
            ends_in(markup.think_open, tokenizer, ids) || ends_in(markup.think_close, tokenizer, ids) ? 0 : 1;
    });
}

minim_status minim_chat_get_markup(const minim_model* model, minim_chat_markup* out, minim_error* err) {
    return guard(err, [&] {
        const chat::Markup& markup = chat::markup_of(required(model, "model").model().text().tokenizer());
        minim_chat_markup result = MINIM_CHAT_MARKUP_INIT;
        result.format = static_cast<int32_t>(markup.family);
        // The texts are literals, so they are zero-terminated.
        result.think_begin = markup.think_open.data();
        result.think_end = markup.think_close.data();
        result.call_begin = chat::call_begin(markup).data();
        result_to(out, "minim_chat_markup", result);
    });
}
