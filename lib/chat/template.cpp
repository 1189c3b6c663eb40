// SPDX-License-Identifier: Apache-2.0
#include "chat/template.h"

#include "base/error.h"
#include "base/utf8.h"
#include "chat/jinja_parser.h"

namespace minim::chat {

bool Template::reads(std::string_view variable) const {
    return parsed->names.find(variable) != parsed->names.end();
}

Template parse_template(std::string_view jinja_text) {
    if (jinja_text.find_first_not_of(" \t\r\n") == std::string_view::npos)
        fail(Status::unsupported, "the chat template is empty");
    for (std::string_view rest = jinja_text; !rest.empty();) {
        const size_t length = utf8_sequence_length(rest);
        if (length == 0)
            fail(Status::unsupported, "the chat template is not UTF-8 at byte {}",
                 jinja_text.size() - rest.size());
        rest.remove_prefix(length);
    }
    return {std::make_shared<const jinja::ParsedTemplate>(jinja::parse(jinja_text))};
}

}  // namespace minim::chat
