// Lays out a conversation as the prompt text a MiniMax-M2 model was trained on, byte for byte what the
// checkpoint's Jinja template prints under Hugging Face's settings (trim_blocks, lstrip_blocks, its own
// tojson).
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "chat/template.h"

namespace minim::chat {

// A piece of the prompt, by who wrote it.
struct Segment {
    std::string text;
    // true: taken from the request (message text, reasoning, tool definitions and results, names and values
    // of arguments, identity, date, place), where the spelling of a special token is only text. false: the
    // template's own skeleton, where it is the token.
    bool is_user_text;
};

struct RenderOptions {
    bool add_generation_prompt =
        true;  // end with the header of the assistant's message and an opened think block
    bool null_content_is_empty = false;  // content that is null or missing as an empty text, not as "None"
};

// messages_json: array of message objects. tools_json: array of tools, or empty or "null" for none; tools
// without the
// {"type": "function", "function": ...} wrapper are accepted. kwargs_json: object of template variables, or
// empty or "null"; `model_identity` replaces the default identity, `add_generation_prompt` the option; others
// have no effect.
//
// Beyond the template: role `developer` in the first message counts as `system`; call arguments may be a JSON
// string or be missing; `reasoning` and `reasoning_details[].text` stand in for a missing
// `reasoning_content`.
//
// Neighbouring segments differ in kind and none is empty. Throws Status::invalid on malformed JSON and on
// whatever the template would fail on or leave out: read_conversation() lists the rules for roles.
std::vector<Segment> render(const Template& chat_template, std::string_view messages_json,
                            std::string_view tools_json, std::string_view kwargs_json,
                            const RenderOptions& options);

// The prompt as one text.
std::string join(std::span<const Segment> segments);

}  // namespace minim::chat
