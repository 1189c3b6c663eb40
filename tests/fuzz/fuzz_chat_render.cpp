// Any bytes as the messages of a request: rendering either gives a prompt in proper segments or says what is
// wrong.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/error.h"
#include "chat/render.h"

namespace {

void require(bool condition) {
    if (!condition) std::abort();
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
    const minim::chat::Template chat_template{"You are a helpful assistant."};
    const std::string_view json(reinterpret_cast<const char*>(data), size);
    try {
        check_segments(minim::chat::render(chat_template, json, "", "", {}));
    } catch (const minim::Error& error) {
        require(error.status() == minim::Status::invalid);
    }
    // The same bytes as the tools and the variables of an empty conversation; the latter may turn off the
    // generation prompt, so only the errors are checked.
    for (const bool as_tools : {true, false}) {
        try {
            minim::chat::render(chat_template, "[]", as_tools ? json : "", as_tools ? "" : json, {});
        } catch (const minim::Error& error) {
            require(error.status() == minim::Status::invalid);
        }
    }
    return 0;
}
