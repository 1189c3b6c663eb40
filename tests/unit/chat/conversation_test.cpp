#include "chat/conversation.h"

#include <string>
#include <vector>

#include "error_text.h"
#include "support/catch.h"

namespace minim::chat {
namespace {

std::string read_error(std::string_view json) {
    return error_text([&] { read_conversation(json::parse(json, "messages", json::Source::argument)); });
}

// The places in the request of the turns, in the order in which they are printed.
std::vector<size_t> order(std::string_view json) {
    const json::Value messages = json::parse(json, "messages", json::Source::argument);
    std::vector<size_t> places;
    for (const Turn& turn : read_conversation(messages).turns) places.push_back(turn.index);
    return places;
}

constexpr std::string_view k_no_call =
    "invalid: Message has tool role, but there was no previous assistant message with a tool call!";

TEST_CASE("a first message of role system or developer is the system message") {
    for (const char* role : {"system", "developer"}) {
        const json::Value messages =
            json::parse(std::string(R"([{"role": ")") + role + R"("}, {"role": "user"}])", "messages",
                        json::Source::argument);
        const Conversation conversation = read_conversation(messages);
        CHECK(conversation.system == &messages.items[0]);
        REQUIRE(conversation.turns.size() == 1);
        CHECK(conversation.turns[0].role == Role::user);
        CHECK(conversation.turns[0].index == 1);
    }
}

TEST_CASE("no messages at all are a conversation") {
    CHECK(order("[]").empty());
}

TEST_CASE("a later system message is refused by its place") {
    CHECK(read_error(R"([{"role": "user"}, {"role": "system"}])") ==
          "invalid: messages[1]: role 'system' is possible in the first message only");
    CHECK(read_error(R"([{"role": "system"}, {"role": "developer"}])") ==
          "invalid: messages[1]: role 'developer' is possible in the first message only");
}

TEST_CASE("an unknown role is refused by its name and place") {
    CHECK(read_error(R"([{"role": "user"}, {"role": "function"}])") ==
          "invalid: messages[1]: role 'function' is not system, user, assistant or tool");
    CHECK(read_error(R"([{"content": "x"}])") ==
          "invalid: messages[0]: role none is not system, user, assistant or tool");
    CHECK(read_error(R"([{"role": 5}])") ==
          "invalid: messages[0]: role 5 is not system, user, assistant or tool");
    CHECK(read_error(R"([{"role": "User"}])").find("'User'") != std::string::npos);
}

TEST_CASE("a long role is cut between characters in the message") {
    std::string role = "a";
    for (int i = 0; i < 2000; ++i) role += "\u00e9";
    const std::string error = read_error("[{\"role\": \"" + role + "\"}]");
    CHECK(error.size() < 200);
    CHECK(error.find("\u00e9... is not") != std::string::npos);
}

TEST_CASE("what is no list of objects is refused") {
    CHECK(read_error("{}") == "invalid: messages: not an array");
    CHECK(read_error("null") == "invalid: messages: not an array");
    CHECK(read_error(R"([{"role": "user"}, "x"])") == "invalid: messages[1]: not an object");
}

TEST_CASE("a tool message needs a call in the last assistant message before it") {
    CHECK(read_error(R"([{"role": "tool"}])") == k_no_call);
    CHECK(read_error(R"([{"role": "assistant"}, {"role": "tool"}])") == k_no_call);
    CHECK(read_error(R"([{"role": "assistant", "tool_calls": []}, {"role": "tool"}])") == k_no_call);
    CHECK(read_error(
              R"([{"role": "assistant", "tool_calls": [{}]}, {"role": "assistant"}, {"role": "tool"}])") ==
          k_no_call);
    CHECK(read_error(R"([{"role": "assistant", "tool_calls": [{}]}, {"role": "tool"}, {"role": "tool"}])") ==
          "no error");
    CHECK(read_error(R"([{"role": "assistant", "tool_calls": [{}]}, {"role": "user"}, {"role": "tool"}])") ==
          "no error");
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
