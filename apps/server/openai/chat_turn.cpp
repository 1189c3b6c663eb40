// SPDX-License-Identifier: Apache-2.0
// Reads the conversation of a request to /v1/chat/completions.
#include <fmt/format.h>

#include "anthropic/blocks.h"
#include "tool_fields.h"
#include "turn.h"

namespace server {

namespace {

// Returns a tool's result: a text, or a list whose items the template prints as one response each.
Json tool_content(const Fields& message) {
    const Json* content = message.find("content");
    if (content == nullptr || !content->is_array())
        return content_text(message, "content", "", Unreadable::note);
    Json items = Json::array();
    for (size_t i = 0; i < content->size(); ++i) {
        const Json& item = (*content)[i];
        if (!item.is_object() || text_member(item, "type").empty()) {
            items.push_back(item);  // the template prints it as JSON
            continue;
        }
        const Fields part(item, fmt::format("{}[{}]", message.place("content"), i));
        items.push_back({{"type", "text"}, {"text", part_text(part, Unreadable::note)}});
    }
    return items;
}

Json function_call(const Fields& function, const std::string& id) {
    return call_json(id, function.required_text("name"), call_arguments(function.find("arguments")));
}

Json read_call(const Json& value, const std::string& place) {
    const Fields call(value, place);
    const std::string id = call.text("id").value_or("");
    if (const Json* custom = call.object("custom")) {  // {"name", "input"}: a text instead of JSON
        const Fields fields(*custom, place + ".custom");
        const std::string name = fields.required_text("name");
        return call_json(id, name, {{"input", fields.text("input").value_or("")}});
    }
    const Json* wrapped = call.object("function");
    return function_call(wrapped != nullptr ? Fields(*wrapped, place + ".function") : call, id);
}

// Returns the reasoning of an assistant's message, from any of the fields that clients use for it.
std::optional<std::string> read_reasoning(const Fields& message) {
    if (const Json* own = message.find("reasoning_content")) {
        if (!own->is_string())
            message.refuse("reasoning_content", fmt::format("must be a string, not {}", kind_of(*own)));
        return own->get<std::string>();
    }
    if (const Json* alias = message.find("reasoning"); alias != nullptr && alias->is_string())
        return alias->get<std::string>();
    std::string text;
    if (const Json* details = message.array("reasoning_details")) {
        for (const Json& detail : *details) text += text_member(detail, "text");
    }
    if (text.empty()) return std::nullopt;
    return text;
}

Json read_assistant(const Fields& message) {
    Json result = {{"role", "assistant"},
                   {"content", content_text(message, "content", "", Unreadable::note)}};
    if (const auto reasoning = read_reasoning(message)) result["reasoning_content"] = *reasoning;
    Json calls = Json::array();
    if (const Json* given = message.array("tool_calls")) {
        for (size_t i = 0; i < given->size(); ++i)
            calls.push_back(read_call((*given)[i], fmt::format("{}[{}]", message.place("tool_calls"), i)));
    }
    if (const Json* given = message.object("function_call"))  // before there were tool_calls
        calls.push_back(function_call(Fields(*given, message.place("function_call")), ""));
    if (!calls.empty()) result["tool_calls"] = std::move(calls);
    return result;
}

// Only models with a message of the owner (`root`) have one, before all others.
bool may_be_root(const Turn& turn, const ServedModel& serving) {
    return turn.messages.empty() && serving.markup.format == MINIM_CHAT_FORMAT_M3;
}

Json read_message(const Fields& message, Unreadable unreadable, bool may_be_root) {
    const std::string role = message.required_text("role");
    if (role == "system" || role == "developer") {
        Json result = {{"role", "system"}, {"content", content_text(message, "content", "", unreadable)}};
        for (const char* field : {"current_date", "current_location"})
            if (const auto value = message.text(field)) result[field] = *value;
        return result;
    }
    if (role == "user" || (role == "root" && may_be_root))
        return {{"role", role}, {"content", content_text(message, "content", "", unreadable)}};
    if (role == "assistant") return read_assistant(message);
    if (role == "tool" || role == "function") {
        Json result = {{"role", "tool"}, {"content", tool_content(message)}};
        if (const auto id = message.text("tool_call_id")) result["tool_call_id"] = *id;
        return result;
    }
    message.refuse("role", fmt::format("is '{}'; it must be system, developer, user, assistant or tool",
                                       role.substr(0, 40)));
}

Speaker speaker_of(const Json& message) {
    const std::string role = text_member(message, "role");
    if (role == "tool" || role == "function") return Speaker::tool;
    return speaker_of_blocks(message);
}

}  // namespace

Turn read_chat(const Fields& request, ServedModel& serving) {
    Turn turn;
    set_reasoning_budget(serving.options.reasoning_budget, turn);
    const Json& messages = request.required_array("messages");
    if (messages.empty()) request.refuse("messages", "is empty");
    const size_t question = new_question(messages, speaker_of);
    for (size_t i = 0; i < messages.size(); ++i) {
        const Fields message(messages[i], fmt::format("messages[{}]", i));
        const Unreadable unreadable = i >= question ? Unreadable::refuse : Unreadable::note;
        const Json* content = message.find("content");
        const std::string role = message.required_text("role");
        if (content != nullptr && has_blocks(*content) && role == "user") {
            add_user_blocks(message, *content, unreadable, turn, serving);
            continue;
        }
        if (content != nullptr && has_blocks(*content) && role == "assistant" && !message.has("tool_calls")) {
            add_assistant_blocks(message, *content, turn, serving);
            continue;
        }
        add_message(read_message(message, unreadable, may_be_root(turn, serving)), turn, serving);
    }
    read_common(request, ToolForm::chat, turn);
    if (turn.continues && turn.messages.back()["role"] != "assistant")
        request.refuse("continue_final_message", "needs a last message of the assistant");
    return turn;
}

}  // namespace server
