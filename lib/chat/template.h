// Prompts are laid out natively, not by running the checkpoint's Jinja template. This file decides from the
// template's text whether that layout is the right one and takes from it the one thing that varies between
// releases of the MiniMax-M2 family: the sentence printed when a conversation has no system text.
#pragma once

#include <string>
#include <string_view>

namespace minim::chat {

struct Template {
    std::string default_identity;
};

// Throws Status::unsupported, naming what is missing and the format the text resembles, when it is not a
// template of the MiniMax-M2 family.
Template recognise_template(std::string_view jinja_text);

}  // namespace minim::chat
