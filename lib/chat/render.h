// SPDX-License-Identifier: Apache-2.0
// Renders a conversation with the checkpoint's chat template. The result has the same bytes as in transformers.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "chat/markup.h"
#include "chat/template.h"

namespace minim::chat {

// A part of the prompt with one author.
struct Segment {
    std::string text;
    // true: taken from the request (message text, reasoning, tool definitions and results, names and values
    // of arguments, variables), where the spelling of a special token is only text. false: the template's own
    // text, where it is the token.
    bool is_user_text;
};

struct RenderOptions {
    bool add_generation_prompt = true;   // the variable of that name
    bool null_content_is_empty = false;  // content that is null or missing becomes an empty text, not "None"
    // The template's variable `thinking_mode` becomes "disabled", unless it is given; without such a variable, a think block that
    // the prompt opens at its end is closed.
    bool thinking_off = false;
    // The prompt ends inside the last message, which must be the assistant's, and no generation prompt is added.
    bool continue_final_message = false;
    Family family = Family::m2;  // of the model
    // Set to the names of variables in kwargs_json that the template does not read.
    std::vector<std::string>* unread_variables = nullptr;
};

// messages_json: array of message objects. tools_json: array of tools, or empty or "null" for none. kwargs_json: object
// of template variables, or empty or "null"; `add_generation_prompt` in it replaces the option.
// Messages and tools are normalised first (conversation.h).
//
// Neighbouring segments differ in kind and none is empty. Throws Status::invalid for malformed JSON, if the template
// raises an exception or fails, and for a message of which the template reads only the role: it would be lost
// silently, or for a last message that cannot go on; for M3 also for a picture or film in a message, whose placeholder the template
// would print. Throws Status::unsupported for features that the interpreter of templates does not have.
std::vector<Segment> render(const Template& chat_template, std::string_view messages_json,
                            std::string_view tools_json, std::string_view kwargs_json,
                            const RenderOptions& options);

// Returns the prompt as one text.
std::string join(std::span<const Segment> segments);

}  // namespace minim::chat
