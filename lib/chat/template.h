// SPDX-License-Identifier: Apache-2.0
// A checkpoint's chat template, ready to render conversations; the Jinja text is executed unchanged.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace minim::chat {

namespace jinja {
struct ParsedTemplate;
}

struct Template {
    std::shared_ptr<const jinja::ParsedTemplate> parsed;
    // Variables that stand for special tokens of the checkpoint: bos_token, eos_token ...
    std::vector<std::pair<std::string, std::string>> special_tokens = {};

    // Returns whether the template reads a variable of that name.
    bool reads(std::string_view variable) const;
};

// Throws Status::unsupported, with the line, if it is not a Jinja template or uses features that the interpreter does
// not have.
Template parse_template(std::string_view jinja_text);

}  // namespace minim::chat
