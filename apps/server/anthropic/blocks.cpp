// SPDX-License-Identifier: Apache-2.0
#include "anthropic/blocks.h"

#include <algorithm>

#include <fmt/format.h>

namespace server {

namespace {

// Returns whether a block belongs to a tool that ran on a provider's servers, or to nobody who can read it here.
bool is_foreign(const std::string& type) {
    return type == "redacted_thinking" || type == "server_tool_use" || type == "mcp_tool_use" ||
           type == "container_upload" || type == "fallback" ||
           (type.ends_with("_tool_result") && type != "tool_result");
}

// Returns the text of a thought: a text, or a list of text parts.
std::string thought_of(const Fields& block) {
    return content_text(block, "thinking", "", Unreadable::note);
}

Json call_of(const Fields& block) {
    const std::string id = block.required_text("id");
    return call_json(id, block.required_text("name"), call_arguments(block.find("input")));
}

}  // namespace

bool has_blocks(const Json& content) {
    return content.is_array() && std::any_of(content.begin(), content.end(), [](const Json& block) {
               const std::string type = text_member(block, "type");
               return type == "thinking" || type == "tool_use" || type == "tool_result" || is_foreign(type);
           });
}

Speaker speaker_of_blocks(const Json& message) {
    if (text_member(message, "role") == "assistant") return Speaker::assistant;
    if (!message.is_object() || !message.contains("content")) return Speaker::user;
    const Json& content = message["content"];
    const bool has_result =
        content.is_array() && std::any_of(content.begin(), content.end(), [](const Json& b) {
            return text_member(b, "type") == "tool_result";
        });
    return has_result ? Speaker::tool : Speaker::user;
}

void add_assistant_blocks(const Fields& message, const Json& blocks, Turn& turn, ServedModel& serving) {
    Json result = {{"role", "assistant"}, {"content", ""}};
    Json calls = Json::array();
    std::string& text = result["content"].get_ref<std::string&>();
    std::string reasoning;
    bool has_foreign = false;
    for (size_t i = 0; i < blocks.size(); ++i) {
        if (blocks[i].is_string()) {
            text += blocks[i].get_ref<const std::string&>();
            continue;
        }
        const Fields block(blocks[i], fmt::format("{}[{}]", message.place("content"), i));
        const std::string type = block.required_text("type");
        if (type == "thinking") {
            reasoning += thought_of(block);
        } else if (type == "tool_use") {
            calls.push_back(call_of(block));
        } else if (type == "compaction") {  // the summary of what was before
            text += content_text(block, "content", "\n", Unreadable::note);
        } else if (is_foreign(type)) {
            has_foreign = true;
        } else {
            text += part_text(block, Unreadable::note);
        }
    }
    // A turn in which nothing remains would only be an empty answer.
    if (has_foreign && text.empty() && calls.empty()) return;
    if (!reasoning.empty()) result["reasoning_content"] = reasoning;
    if (!calls.empty()) result["tool_calls"] = std::move(calls);
    add_message(std::move(result), turn, serving);
}

void add_user_blocks(const Fields& message, const Json& blocks, Unreadable unreadable, Turn& turn,
                     ServedModel& serving) {
    std::string text;
    std::string reminders;
    bool has_text = false;
    bool has_results = false;
    for (size_t i = 0; i < blocks.size(); ++i) {
        if (text_member(blocks[i], "type") != "tool_result") continue;
        const Fields block(blocks[i], fmt::format("{}[{}]", message.place("content"), i));
        add_message({{"role", "tool"},
                     {"tool_call_id", block.required_text("tool_use_id")},
                     {"content", content_text(block, "content", "\n", Unreadable::note)}},
                    turn, serving);
        has_results = true;
    }
    for (size_t i = 0; i < blocks.size(); ++i) {
        if (text_member(blocks[i], "type") == "tool_result") continue;
        std::string part;
        if (blocks[i].is_string()) {
            part = blocks[i];
        } else {
            const Fields block(blocks[i], fmt::format("{}[{}]", message.place("content"), i));
            const std::string type = block.required_text("type");
            if (is_foreign(type)) continue;
            part = part_text(block, unreadable);
        }
        if (has_results && is_reminder(part)) {
            reminders += (reminders.empty() ? "" : "\n") + part;
        } else {
            text += part;
            has_text = true;
        }
    }
    if (!reminders.empty()) add_message({{"role", "user"}, {"content", reminders}}, turn, serving);
    if (has_text || (blocks.empty() && !has_results))
        add_message({{"role", "user"}, {"content", text}}, turn, serving);
}

}  // namespace server
