// SPDX-License-Identifier: Apache-2.0
#include "chat/conversation.h"

#include <string>
#include <vector>

#include "error_text.h"
#include "support/catch.h"

namespace minim::chat {
namespace {

json::Value parsed(std::string_view text) {
    return json::parse(text, "messages", json::Source::argument);
}

// Returns the normalised conversation as compact JSON.
std::string normalised(std::string_view text, bool null_content_is_empty = false) {
    json::Value messages = parsed(text);
    normalise_messages(messages, null_content_is_empty);
    return json::to_text(messages);
}

std::string messages_error(std::string_view text) {
    return error_text([&] { normalised(text); });
}

std::string normalised_tools(std::string_view text) {
    json::Value tools = parsed(text);
    normalise_tools(tools);
    return json::to_text(tools);
}

// Returns each message's index in the request, in the normalised order. A member "n" that is added to each message carries the
// index.
std::vector<size_t> order(std::string_view text) {
    json::Value messages = parsed(text);
    for (size_t i = 0; i < messages.items.size(); ++i) {
        messages.items[i].keys.emplace_back("n");
        messages.items[i].items.push_back(parsed(std::to_string(i)));
    }
    normalise_messages(messages, false);
    std::vector<size_t> places;
    for (const json::Value& message : messages.items)
        places.push_back(static_cast<size_t>(*json::to_int64(*json::find(&message, "n"))));
    return places;
}

TEST_CASE("a first message of role developer is the system message, and no later one") {
    CHECK(normalised(R"([{"role":"developer"},{"role":"developer"},{"role":"user"}])") ==
          R"([{"role":"system"},{"role":"developer"},{"role":"user"}])");
    CHECK(normalised("[]") == "[]");
}

TEST_CASE("what is no list of objects is refused") {
    CHECK(messages_error("{}") == "invalid: messages: not an array");
    CHECK(messages_error("null") == "invalid: messages: not an array");
    CHECK(messages_error(R"([{"role": "user"}, "x"])") == "invalid: messages[1]: not an object");
}

TEST_CASE("null and missing content become an empty text where that is asked for") {
    const std::string_view messages =
        R"([{"role":"user","content":null},{"role":"assistant"},{"content":"x"}])";
    CHECK(normalised(messages) == messages);
    CHECK(normalised(messages, true) ==
          R"([{"role":"user","content":""},{"role":"assistant","content":""},{"content":"x"}])");
}

TEST_CASE("reasoning under other names becomes reasoning_content") {
    const auto of = [](const std::string& members) {
        const std::string text = normalised(R"([{"role":"assistant",)" + members + "}]");
        const json::Value messages = parsed(text);
        const json::Value* reasoning = json::find(&messages.items[0], "reasoning_content");
        return reasoning == nullptr ? std::string("none") : json::to_text(*reasoning);
    };
    CHECK(of(R"("reasoning":"r")") == "\"r\"");
    CHECK(of(R"("reasoning":"r","reasoning_content":null)") == "\"r\"");
    CHECK(of(R"("reasoning":"r","reasoning_content":"")") == "\"\"");
    CHECK(of(R"("reasoning":"r","reasoning_content":5)") == "5");
    CHECK(of(R"("reasoning":"","reasoning_details":[{"text":"a"},{"x":1},{"text":"b"},7])") == "\"ab\"");
    CHECK(of(R"("reasoning":5,"reasoning_details":{})") == "none");
    CHECK(normalised(R"([{"role":"user","reasoning":"r"}])") == R"([{"role":"user","reasoning":"r"}])");
}

TEST_CASE("a flat tool is wrapped") {
    CHECK(normalised_tools(R"([{"type":"function","name":"f","parameters":{}}])") ==
          R"([{"type":"function","function":{"name":"f","parameters":{}}}])");
    CHECK(normalised_tools(R"([{"name":"f","type":"custom"}])") ==
          R"([{"type":"function","function":{"name":"f","type":"custom"}}])");
    CHECK(normalised_tools(R"([{"function":{"z":1}}])") == R"([{"function":{"z":1}}])");
}

TEST_CASE("results take the order of their calls") {
    CHECK(order(R"([{"role": "assistant", "tool_calls": [{"id": "a"}, {"id": "b"}, {"id": "c"}]},
                    {"role": "tool", "tool_call_id": "c"}, {"role": "tool", "tool_call_id": "a"},
                    {"role": "tool", "tool_call_id": "b"}, {"role": "user"}])") ==
          std::vector<size_t>{0, 2, 3, 1, 4});
    CHECK(order(R"([{"role": "assistant", "tool_calls": [{"id": "a"}, {"id": "b"}, {"id": "c"}]},
                    {"role": "tool", "tool_call_id": "c"}, {"role": "tool", "tool_call_id": "a"}])") ==
          std::vector<size_t>{0, 2, 1});
}

TEST_CASE("results keep their order where ids do not settle it") {
    const std::vector<size_t> kept{0, 1, 2};
    CHECK(order(R"([{"role": "assistant", "tool_calls": [{"id": "a"}, {"id": "b"}]},
                    {"role": "tool", "tool_call_id": "b"}, {"role": "tool"}])") == kept);
    CHECK(order(R"([{"role": "assistant", "tool_calls": [{"id": "a"}, {"id": "b"}]},
                    {"role": "tool", "tool_call_id": "b"}, {"role": "tool", "tool_call_id": "x"}])") == kept);
    CHECK(order(R"([{"role": "assistant", "tool_calls": [{"id": "a"}, {"id": "b"}]},
                    {"role": "tool", "tool_call_id": "b"}, {"role": "tool", "tool_call_id": "b"}])") == kept);
    CHECK(order(R"([{"role": "assistant", "tool_calls": [{"id": "a"}, {"id": "a"}]},
                    {"role": "tool", "tool_call_id": "a"}, {"role": "tool", "tool_call_id": "b"}])") == kept);
    CHECK(order(R"([{"role": "assistant", "tool_calls": [{"id": "a"}, {}]},
                    {"role": "tool", "tool_call_id": "b"}, {"role": "tool", "tool_call_id": "a"}])") == kept);
}

}  // namespace
}  // namespace minim::chat
