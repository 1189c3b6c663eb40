// SPDX-License-Identifier: Apache-2.0
// Parses the subset of Jinja that chat templates use. Unsupported features are refused here, by name and line, not when a
// conversation is rendered.
#pragma once

#include <set>
#include <string>
#include <string_view>

#include "chat/jinja_ast.h"

namespace minim::chat::jinja {

struct ParsedTemplate {
    Block body;
    std::set<std::string, std::less<>> names;  // of all variables that are read anywhere
};

// Throws Status::unsupported.
ParsedTemplate parse(std::string_view source);

}  // namespace minim::chat::jinja
