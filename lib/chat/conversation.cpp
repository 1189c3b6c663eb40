// SPDX-License-Identifier: Apache-2.0
#include "chat/conversation.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/format_text.h"
#include "chat/python_text.h"

namespace minim::chat {

using json::find;
using json::Value;

namespace {

bool is_role(const Value& message, std::string_view role) {
    const Value* own = find(&message, "role");
    return own != nullptr && own->is_string(role);
}

// Returns a member of an object; adds it as null if it is missing.
Value& member(Value& object, std::string_view key) {
    const auto at = std::find(object.keys.begin(), object.keys.end(), key);
    const auto index = static_cast<size_t>(at - object.keys.begin());
    if (index == object.keys.size()) {
        object.keys.emplace_back(key);
        object.items.emplace_back();
    }
    return object.items[index];
}

Value text_value(std::string text) {
    Value value;
    value.kind = Value::Kind::string;
    value.text = std::move(text);
    return value;
}

Value empty_object() {
    Value value;
    value.kind = Value::Kind::object;
    return value;
}

// Returns the reasoning that a message has under another name. Empty reasoning counts as none.
std::optional<std::string> reasoning_alias(const Value& message) {
    const Value* reasoning = find(&message, "reasoning");
    if (reasoning != nullptr && reasoning->is_string() && is_true(reasoning)) return reasoning->text;

    const Value* details = find(&message, "reasoning_details");
    std::string text;
    if (details != nullptr && details->is_array()) {
        for (const Value& detail : details->items) {
            const Value* part = find(&detail, "text");
            if (part != nullptr && part->is_string()) text += part->text;
        }
    }
    if (text.empty()) return std::nullopt;
    return text;
}

// An empty reasoning_content says that the content has no reasoning either, so it is not replaced.
void normalise_reasoning(Value& message) {
    const Value* own = find(&message, "reasoning_content");
    if (own != nullptr && !own->is_null()) return;
    if (auto alias = reasoning_alias(message))
        member(message, "reasoning_content") = text_value(std::move(*alias));
}

// Clients of the OpenAI API send arguments as a JSON text; an empty text and null stand for none.
void normalise_arguments(Value& function, const std::string& where) {
    Value& given = member(function, "arguments");
    if (given.is_object()) return;
    if (given.is_null()) {
        given = empty_object();
        return;
    }
    if (!given.is_string()) fail(Status::invalid, "{}: arguments are neither an object nor a string", where);
    Value parsed = empty_object();
    if (given.text.find_first_not_of(" \t\r\n") != std::string::npos)
        parsed = json::parse(given.text, where + ".arguments", json::Source::argument);
    if (parsed.is_null()) parsed = empty_object();
    if (!parsed.is_object()) fail(Status::invalid, "{}.arguments: the JSON text is not an object", where);
    given = std::move(parsed);
}

void normalise_calls(Value& message, size_t index) {
    const Value* calls = find(&message, "tool_calls");
    if (!is_true(calls)) return;
    if (!calls->is_array()) fail(Status::invalid, "messages[{}].tool_calls: not an array", index);
    std::vector<Value>& items = member(message, "tool_calls").items;
    for (size_t i = 0; i < items.size(); ++i) {
        const std::string where = format_text("messages[{}].tool_calls[{}]", index, i);
        const bool is_wrapped = is_true(find(&items[i], "function"));
        Value& function = is_wrapped ? member(items[i], "function") : items[i];
        if (!function.is_object()) fail(Status::invalid, "{}: not an object", where);
        normalise_arguments(function, where);
    }
}

// Returns the position of each call by its id; nothing if an id is missing or occurs twice.
std::optional<std::map<std::string_view, size_t>> positions_by_id(const Value* calls) {
    std::map<std::string_view, size_t> positions;
    if (calls == nullptr || !calls->is_array()) return std::nullopt;
    for (const Value& call : calls->items) {
        const Value* id = find(&call, "id");
        if (id == nullptr || !id->is_string()) return std::nullopt;
        if (!positions.emplace(id->text, positions.size()).second) return std::nullopt;
    }
    return positions;
}

// Sorts the messages [begin, end), which are results of `calls`, in the order of the calls.
void order_results(std::vector<Value>& messages, size_t begin, size_t end, const Value* calls) {
    const auto positions = positions_by_id(calls);
    if (!positions) return;
    std::vector<std::pair<size_t, size_t>> placed;  // the positions of the call and of the message
    std::vector<bool> answered(positions->size(), false);
    for (size_t i = begin; i < end; ++i) {
        const Value* id = find(&messages[i], "tool_call_id");
        if (id == nullptr || !id->is_string()) return;
        const auto at = positions->find(id->text);
        if (at == positions->end() || answered[at->second]) return;
        answered[at->second] = true;
        placed.emplace_back(at->second, i);
    }
    std::sort(placed.begin(), placed.end());
    std::vector<Value> ordered;
    for (const auto& [call, message] : placed) ordered.push_back(std::move(messages[message]));
    std::move(ordered.begin(), ordered.end(), messages.begin() + static_cast<std::ptrdiff_t>(begin));
}

void order_tool_groups(std::vector<Value>& messages) {
    for (size_t i = 0; i < messages.size(); ++i) {
        if (!is_role(messages[i], "assistant")) continue;
        size_t end = i + 1;
        while (end < messages.size() && is_role(messages[end], "tool")) ++end;
        if (end - i > 2) order_results(messages, i + 1, end, find(&messages[i], "tool_calls"));
    }
}

}  // namespace

void normalise_messages(Value& messages, bool null_content_is_empty) {
    if (!messages.is_array()) fail(Status::invalid, "messages: not an array");
    for (size_t i = 0; i < messages.items.size(); ++i) {
        Value& message = messages.items[i];
        if (!message.is_object()) fail(Status::invalid, "messages[{}]: not an object", i);
        if (i == 0 && is_role(message, "developer")) member(message, "role").text = "system";
        if (null_content_is_empty &&
            (find(&message, "content") == nullptr || find(&message, "content")->is_null()))
            member(message, "content") = text_value({});
        if (!is_role(message, "assistant")) continue;
        normalise_reasoning(message);
        normalise_calls(message, i);
    }
    order_tool_groups(messages.items);
}

void normalise_tools(Value& tools) {
    for (size_t i = 0; i < tools.items.size(); ++i) {
        Value& tool = tools.items[i];
        const Value* function = find(&tool, "function");
        if (function != nullptr && function->is_object()) continue;
        if (function != nullptr) fail(Status::invalid, "tools[{}]: function is not an object", i);
        if (find(&tool, "name") == nullptr)
            fail(Status::invalid, "tools[{}]: neither an object with a function nor one with a name", i);
        Value wrapped = empty_object();
        member(wrapped, "type") = text_value("function");
        member(wrapped, "function") = std::move(tool);
        if (const Value* type = find(find(&wrapped, "function"), "type");
            type != nullptr && type->is_string("function")) {
            Value& inner = member(wrapped, "function");
            const auto at = std::find(inner.keys.begin(), inner.keys.end(), "type") - inner.keys.begin();
            inner.keys.erase(inner.keys.begin() + at);
            inner.items.erase(inner.items.begin() + at);
        }
        tool = std::move(wrapped);
    }
}

}  // namespace minim::chat
