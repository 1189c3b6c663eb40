// SPDX-License-Identifier: Apache-2.0
// Reads the conversation of a request to /v1/messages.
#include <fmt/format.h>

#include "anthropic/blocks.h"
#include "tool_fields.h"
#include "turn.h"

namespace server {

namespace {

// Refuses to go on with a conversation that the server would have to store. The client then sends all of it. A conversation that only
// asks to be stored is answered.
void refuse_thread(const Fields& request) {
    const Json* given = request.object("thread");
    if (given == nullptr) return;
    if (Fields(*given, "thread").text("type") == "create") return;
    ApiError error{400, "thread is not possible: nothing is stored; send the whole conversation", "thread",
                   ""};
    error.detail_code = "thread_unsupported_request";
    throw error;
}

void read_messages(const Fields& request, Turn& turn, ServedModel& serving) {
    add_message(
        {{"role", "system"}, {"content", content_text(request, "system", "\n\n", Unreadable::refuse)}}, turn,
        serving);
    const Json& messages = request.required_array("messages");
    if (messages.empty()) request.refuse("messages", "is empty");
    const size_t question = new_question(messages, speaker_of_blocks);
    for (size_t i = 0; i < messages.size(); ++i) {
        const Fields message(messages[i], fmt::format("messages[{}]", i));
        const std::string role = message.required_text("role");
        const Json* content = message.find("content");
        if (content == nullptr) message.refuse("content", "is required");
        if (role != "user" && role != "assistant" && role != "system")
            message.refuse("role", fmt::format("is '{}'; it must be user or assistant", role.substr(0, 40)));
        const Unreadable unreadable = i >= question ? Unreadable::refuse : Unreadable::note;
        if (content->is_string() || role == "system") {
            add_message({{"role", role}, {"content", content_text(message, "content", "\n\n", unreadable)}},
                        turn, serving);
        } else if (!content->is_array()) {
            message.refuse("content",
                           fmt::format("must be a string or a list of blocks, not {}", kind_of(*content)));
        } else if (role == "user") {
            add_user_blocks(message, *content, unreadable, turn, serving);
        } else {
            add_assistant_blocks(message, *content, turn, serving);
        }
    }
}

}  // namespace

Turn read_anthropic(const Fields& request, ServedModel& serving) {
    refuse_thread(request);
    Turn turn;
    set_reasoning_budget(serving.options.reasoning_budget, turn);
    read_messages(request, turn, serving);
    read_common(request, ToolForm::messages, turn);
    // If the last message is the assistant's, it is the start of the answer.
    turn.continues = turn.messages.back()["role"] == "assistant";
    return turn;
}

}  // namespace server
