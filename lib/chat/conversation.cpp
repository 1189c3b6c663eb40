#include "chat/conversation.h"

#include <algorithm>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "chat/python_text.h"

namespace minim::chat {

using json::find;
using json::Value;

namespace {

// A role as the caller wrote it, short enough for an error message.
std::string describe(const Value* role) {
    constexpr size_t k_max_bytes = 60;
    if (role == nullptr) return "none";
    std::string text = role->is_string() ? python_repr(role->text) : python_str(*role);
    if (text.size() <= k_max_bytes) return text;
    size_t end = k_max_bytes;
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) --end;
    return text.substr(0, end) + "...";
}

bool is_system(const Value* role) {
    return role != nullptr && role->is_string() && (role->text == "system" || role->text == "developer");
}

Role read_role(const Value* role, size_t index) {
    if (is_system(role)) {
        fail(Status::invalid, "messages[{}]: role {} is possible in the first message only", index,
             describe(role));
    }
    if (role != nullptr && role->is_string()) {
        if (role->text == "user") return Role::user;
        if (role->text == "assistant") return Role::assistant;
        if (role->text == "tool") return Role::tool;
    }
    fail(Status::invalid, "messages[{}]: role {} is not system, user, assistant or tool", index,
         describe(role));
}

void check_tool_turns_follow_calls(std::span<const Turn> turns) {
    bool pending = false;  // the last assistant message has calls
    for (const Turn& turn : turns) {
        if (turn.role == Role::assistant) pending = is_true(find(turn.message, "tool_calls"));
        if (turn.role == Role::tool && !pending) {
            fail(Status::invalid,
                 "Message has tool role, but there was no previous assistant message with a tool call!");
        }
    }
}

// Position of each call by its id; nothing where an id is missing or occurs twice.
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

void order_results(std::span<Turn> results, const Value* calls) {
    const auto positions = positions_by_id(calls);
    if (!positions) return;
    std::vector<std::pair<size_t, Turn>> placed;
    std::vector<bool> answered(positions->size(), false);
    for (const Turn& turn : results) {
        const Value* id = find(turn.message, "tool_call_id");
        if (id == nullptr || !id->is_string()) return;
        const auto at = positions->find(id->text);
        if (at == positions->end() || answered[at->second]) return;
        answered[at->second] = true;
        placed.emplace_back(at->second, turn);
    }
    std::sort(placed.begin(), placed.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    std::transform(placed.begin(), placed.end(), results.begin(), [](const auto& p) { return p.second; });
}

void order_tool_groups(std::span<Turn> turns) {
    for (size_t i = 0; i < turns.size(); ++i) {
        if (turns[i].role != Role::assistant) continue;
        const auto results = turns.subspan(i + 1);
        const auto end = std::find_if(results.begin(), results.end(),
                                      [](const Turn& turn) { return turn.role != Role::tool; });
        const auto count = static_cast<size_t>(end - results.begin());
        if (count > 1) order_results(results.first(count), find(turns[i].message, "tool_calls"));
    }
}

}  // namespace

Conversation read_conversation(const Value& messages) {
    if (!messages.is_array()) fail(Status::invalid, "messages: not an array");
    Conversation conversation;
    for (size_t i = 0; i < messages.items.size(); ++i) {
        const Value& message = messages.items[i];
        if (!message.is_object()) fail(Status::invalid, "messages[{}]: not an object", i);
        const Value* role = find(&message, "role");
        if (i == 0 && is_system(role)) {
            conversation.system = &message;
        } else {
            conversation.turns.push_back({read_role(role, i), &message, i});
        }
    }
    check_tool_turns_follow_calls(conversation.turns);
    order_tool_groups(conversation.turns);
    return conversation;
}

}  // namespace minim::chat
