// SPDX-License-Identifier: Apache-2.0
// Reads the conversation of a request to /v1/responses.
#include <array>
#include <string_view>
#include <unordered_set>

#include <fmt/format.h>

#include "content.h"
#include "request_log.h"
#include "tool_fields.h"
#include "turn.h"

namespace server {

namespace {

// Items of tools that ran on a provider's servers, and others that hold nothing that this model can read.
constexpr std::array<std::string_view, 13> k_foreign_items = {
    "web_search_call",    "file_search_call",     "code_interpreter_call", "image_generation_call",
    "mcp_list_tools",     "mcp_approval_request", "mcp_approval_response", "tool_search_call",
    "tool_search_output", "compaction",           "compaction_summary",    "ghost_snapshot",
    "compaction_trigger",
};

// Calls of tools that the client runs and that are not functions, and the member that has the arguments.
struct OtherCall {
    std::string_view type;
    const char* arguments;
};
constexpr std::array k_other_calls = {
    OtherCall{"custom_tool_call", "input"},  OtherCall{"local_shell_call", "action"},
    OtherCall{"shell_call", "action"},       OtherCall{"apply_patch_call", "operation"},
    OtherCall{"computer_call", "action"},    OtherCall{"mcp_call", "arguments"},
    OtherCall{"mcp_tool_call", "arguments"},
};

bool is_call(const std::string& type) {
    return type == "function_call" ||
           std::ranges::find(k_other_calls, std::string_view(type), &OtherCall::type) != k_other_calls.end();
}

bool is_output(const std::string& type) {
    constexpr std::string_view k_end = "_output";
    return type.ends_with(k_end) && is_call(type.substr(0, type.size() - k_end.size()));
}

Speaker speaker_of(const Json& item) {
    const std::string type = text_member(item, "type");
    if (is_output(type)) return Speaker::tool;
    const bool is_answer = is_call(type) || type == "reasoning" || text_member(item, "role") == "assistant";
    return is_answer ? Speaker::assistant : Speaker::user;
}

// Returns the output of a call: a text, the parts of a list, or what a program has printed.
std::string output_text(const Fields& item) {
    const Json* output = item.find("output");
    if (output == nullptr) return {};
    if (output->is_object()) {
        if (output->contains("type"))
            return part_text(Fields(*output, item.place("output")), Unreadable::note);
        return to_text(*output);
    }
    const bool has_parts =
        output->is_array() && !output->empty() && !text_member(output->front(), "type").empty();
    if (output->is_array() && !has_parts) return output->empty() ? "" : to_text(*output);
    return content_text(item, "output", "", Unreadable::note);
}

// Joins the items of one turn of the assistant (thoughts, text, calls) into one message.
class Turns {
  public:
    Turns(Turn& turn, ServedModel& serving) : turn_(turn), serving_(serving) {}

    void add(const Fields& item, Unreadable unreadable) {
        const std::string type = item.text("type").value_or("message");
        if (type == "message") {
            add_message_item(item, unreadable);
        } else if (type == "reasoning") {
            add_reasoning(item);
        } else if (type == "function_call") {
            add_call(item, item.required_text("name"), "arguments");
        } else if (type == "function_call_output") {
            add_output(item, item.required_text("call_id"));
        } else if (is_call(type)) {
            add_other_call(item, type);
        } else if (is_output(type)) {
            const std::string id = id_of(item);
            if (known_.contains(id)) add_output(item, id);
        } else if (std::ranges::find(k_foreign_items, type) != k_foreign_items.end()) {
            note_once("item " + type,
                      fmt::format("items of the type '{}' are left out of conversations", type));
        } else {
            item.refuse("type", fmt::format("is '{}', which is not possible here", type.substr(0, 40)));
        }
    }

    void close() {
        if (open_.is_null()) return;
        // Nothing is left of a turn whose only items were left out.
        const bool is_empty =
            !has_text() && !open_.contains("tool_calls") && !open_.contains("reasoning_content");
        if (!is_empty || keeps_empty_) add_message(std::move(open_), turn_, serving_);
        keeps_empty_ = false;
        open_ = nullptr;
    }

  private:
    static std::string id_of(const Fields& item) {
        if (const auto id = item.text("call_id")) return *id;
        return item.text("id").value_or("");
    }

    bool has_text() const {
        return !open_.is_null() && !open_["content"].get_ref<const std::string&>().empty();
    }

    void begin() {
        if (open_.is_null()) open_ = {{"role", "assistant"}, {"content", ""}};
    }

    void add_message_item(const Fields& item, Unreadable unreadable) {
        std::string role = item.required_text("role");
        if (role == "developer") role = "system";
        if (role != "system" && role != "user" && role != "assistant")
            item.refuse("role", fmt::format("is '{}'; it must be system, developer, user or assistant",
                                            role.substr(0, 40)));
        const bool is_answer = role == "assistant";
        const std::string text = content_text(item, "content", "", is_answer ? Unreadable::note : unreadable);
        if (!is_answer) {
            close();
            add_message({{"role", role}, {"content", text}}, turn_, serving_);
            return;
        }
        begin();
        keeps_empty_ = true;
        open_["content"].get_ref<std::string&>() += text;
    }

    // Adds thoughts. Those that are encrypted, by another provider, are left out.
    void add_reasoning(const Fields& item) {
        std::string text = content_text(item, "content", "", Unreadable::note);
        if (text.empty()) text = content_text(item, "summary", "", Unreadable::note);
        if (open_.contains("tool_calls") || has_text()) close();
        begin();
        if (!text.empty()) open_["reasoning_content"] = open_.value("reasoning_content", "") + text;
    }

    void add_call(const Fields& item, const std::string& name, const char* arguments) {
        const std::string id = item.has("call_id") ? item.required_text("call_id") : id_of(item);
        if (id.empty()) item.refuse("call_id", "is required");
        const Json* given = item.find(arguments);
        Json object = std::string_view(arguments) == "input" && given != nullptr ? Json{{"input", *given}}
                                                                                 : call_arguments(given);
        begin();
        open_["tool_calls"].push_back(call_json(id, name, std::move(object)));
        known_.insert(id);
    }

    void add_other_call(const Fields& item, const std::string& type) {
        const auto kind = std::ranges::find(k_other_calls, std::string_view(type), &OtherCall::type);
        const std::string usual = type.substr(0, type.size() - std::string_view("_call").size());
        if (id_of(item).empty()) return;  // nothing can answer it
        add_call(item, item.text("name").value_or(usual), kind->arguments);
        if (item.has("output")) add_output(item, id_of(item));  // it ran on a provider's servers
    }

    void add_output(const Fields& item, const std::string& id) {
        close();
        add_message({{"role", "tool"}, {"tool_call_id", id}, {"content", output_text(item)}}, turn_,
                    serving_);
    }

    Turn& turn_;
    ServedModel& serving_;
    Json open_;                              // a message of the assistant, or null
    bool keeps_empty_ = false;               // the client sent a message, be it empty
    std::unordered_set<std::string> known_;  // ids of calls
};

void read_input(const Fields& request, Turn& turn, ServedModel& serving) {
    if (const auto instructions = request.text("instructions"))
        add_message({{"role", "system"}, {"content", *instructions}}, turn, serving);
    const Json* input = request.find("input");
    if (input == nullptr) request.refuse("input", "is required");
    if (input->is_string()) {
        add_message({{"role", "user"}, {"content", *input}}, turn, serving);
        return;
    }
    if (!input->is_array() || input->empty())
        request.refuse("input", "must be a string or a list of items, and not empty");
    const size_t question = new_question(*input, speaker_of);
    Turns turns(turn, serving);
    for (size_t i = 0; i < input->size(); ++i) {
        const Unreadable unreadable = i >= question ? Unreadable::refuse : Unreadable::note;
        turns.add(Fields((*input)[i], fmt::format("input[{}]", i)), unreadable);
    }
    turns.close();
}

}  // namespace

Turn read_responses(const Fields& request, ServedModel& serving) {
    Turn turn;
    set_reasoning_budget(serving.options.reasoning_budget, turn);
    read_input(request, turn, serving);
    read_common(request, ToolForm::responses, turn);
    return turn;
}

}  // namespace server
