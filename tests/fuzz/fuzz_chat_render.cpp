// SPDX-License-Identifier: Apache-2.0
// Any bytes as the messages of a request: rendering either gives a prompt in proper segments or says what is
// wrong.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/error.h"
#include "chat/render.h"
#include "support/files.h"

namespace {

void require(bool condition) {
    if (!condition) std::abort();
}

minim::chat::Template read_template() {
    return minim::chat::parse_template(minim::test::text_of(MINIM_TEST_DATA "/chat/minim_tiny.jinja"));
}

void check_segments(const std::vector<minim::chat::Segment>& segments) {
    require(!segments.empty() && !segments.front().is_user_text && !segments.back().is_user_text);
    for (size_t i = 0; i < segments.size(); ++i) {
        require(!segments[i].text.empty());
        require(i == 0 || segments[i].is_user_text != segments[i - 1].is_user_text);
    }
    const std::string prompt = minim::chat::join(segments);
    require(prompt.starts_with("]~!b[]~b]system\n") && prompt.ends_with("]~b]ai\n<think>\n"));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    static const minim::chat::Template chat_template = read_template();
    const std::string_view json(reinterpret_cast<const char*>(data), size);
    try {
        check_segments(minim::chat::render(chat_template, json, "", "", {}));
    } catch (const minim::Error& error) {
        require(error.status() == minim::Status::invalid || error.status() == minim::Status::unsupported);
    }
    // The same bytes as the tools and the variables of an empty conversation; the latter may turn off the
    // generation prompt, so only the errors are checked.
    for (const bool as_tools : {true, false}) {
        try {
            minim::chat::render(chat_template, "[]", as_tools ? json : "", as_tools ? "" : json, {});
        } catch (const minim::Error& error) {
            require(error.status() == minim::Status::invalid || error.status() == minim::Status::unsupported);
        }
    }
    return 0;
}
