// SPDX-License-Identifier: Apache-2.0
// Reads the conversation of a request to /v1/chat/completions.
#include <algorithm>
#include <string_view>

#include <fmt/format.h>

#include "conversation.h"
#include "error.h"
#include "openai_fields.h"

namespace server {

namespace {

// Returns the text of a content: a string, or the joined text parts of a list.
std::string content_text(const Fields& message) {
    const Json* content = message.find("content");
    if (content == nullptr) return {};
    if (content->is_string()) return *content;
    if (!content->is_array())
        message.refuse("content",
                       fmt::format("must be a string or a list of parts, not {}", kind_of(*content)));
    std::string text;
    for (size_t i = 0; i < content->size(); ++i) {
        const Json& item = (*content)[i];
        if (item.is_string()) {
            text += item.get_ref<const std::string&>();
            continue;
        }
        const Fields part(item, fmt::format("{}[{}]", message.place("content"), i));
        const std::string type = part.required_text("type");
        if (type == "refusal") continue;
        if (type != "text" && type != "input_text" && type != "output_text")
            part.refuse("type", fmt::format("is '{}'; this model reads text only", type));
        text += part.required_text("text");
    }
    return text;
}

// Returns a tool's result: a text, or a list whose items the template prints as one response each.
Json tool_content(const Fields& message) {
    const Json* content = message.find("content");
    if (content == nullptr || !content->is_array()) return content_text(message);
    for (size_t i = 0; i < content->size(); ++i) {
        const Json& item = (*content)[i];
        if (!item.is_object()) continue;
        const Fields part(item, fmt::format("{}[{}]", message.place("content"), i));
        const auto type = part.text("type");
        if (type && (type->starts_with("image") || type->starts_with("input_audio") || *type == "file"))
            part.refuse("type", fmt::format("is '{}'; this model reads text only", *type));
        if (type == "text") part.required_text("text");
    }
    return *content;
}

Json read_call(const Json& value, const std::string& place) {
    const Fields call(value, place);
    const Json* wrapped = call.object("function");
    const Fields function(wrapped != nullptr ? *wrapped : value,
                          wrapped != nullptr ? place + ".function" : place);
    Json arguments = Json::object();
    if (const Json* given = function.find("arguments"); given != nullptr && given->is_string()) {
        const std::string& text = given->get_ref<const std::string&>();
        const bool is_empty = text.find_first_not_of(" \t\r\n") == std::string::npos;
        const Json parsed = is_empty ? Json::object() : Json::parse(text, nullptr, false);
        if (!parsed.is_object()) function.refuse("arguments", "is not the text of a JSON object");
        arguments = text;  // the renderer reads it again: its numbers keep their digits
    } else if (given != nullptr) {
        if (!given->is_object())
            function.refuse("arguments",
                            fmt::format("must be an object or its JSON text, not {}", kind_of(*given)));
        arguments = *given;
    }
    Json result = {
        {"type", "function"},
        {"function", {{"name", function.required_text("name")}, {"arguments", std::move(arguments)}}}};
    if (const auto id = call.text("id")) result["id"] = *id;
    return result;
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
        for (const Json& detail : *details) {
            if (detail.is_object() && detail.contains("text") && detail["text"].is_string())
                text += detail["text"].get_ref<const std::string&>();
        }
    }
    if (text.empty()) return std::nullopt;
    return text;
}

Json read_assistant(const Fields& message) {
    Json result = {{"role", "assistant"}, {"content", content_text(message)}};
    if (const auto reasoning = read_reasoning(message)) result["reasoning_content"] = *reasoning;
    if (const Json* calls = message.array("tool_calls")) {
        Json list = Json::array();
        for (size_t i = 0; i < calls->size(); ++i)
            list.push_back(read_call((*calls)[i], fmt::format("{}[{}]", message.place("tool_calls"), i)));
        if (!list.empty()) result["tool_calls"] = std::move(list);
    }
    return result;
}

Json read_message(const Fields& message) {
    const std::string role = message.required_text("role");
    if (role == "system" || role == "developer") {
        Json result = {{"role", "system"}, {"content", content_text(message)}};
        for (const char* field : {"current_date", "current_location"})
            if (const auto value = message.text(field)) result[field] = *value;
        return result;
    }
    if (role == "user") return {{"role", "user"}, {"content", content_text(message)}};
    if (role == "assistant") return read_assistant(message);
    if (role == "tool") {
        Json result = {{"role", "tool"}, {"content", tool_content(message)}};
        if (const auto id = message.text("tool_call_id")) result["tool_call_id"] = *id;
        return result;
    }
    message.refuse("role", fmt::format("is '{}'; it must be system, developer, user, assistant or tool",
                                       role.substr(0, 40)));
}

}  // namespace

Json read_tools(const Fields& request) {
    Json tools = Json::array();
    const Json* given = request.array("tools");
    if (given == nullptr) return tools;
    for (size_t i = 0; i < given->size(); ++i) {
        const std::string place = fmt::format("{}[{}]", request.place("tools"), i);
        const Fields tool((*given)[i], place);
        const std::string type = tool.text("type").value_or("function");
        if (type != "function")
            tool.refuse("type", fmt::format("is '{}'; only functions are possible", type.substr(0, 40)));
        const Json* wrapped = tool.object("function");
        Json function = wrapped != nullptr ? *wrapped : (*given)[i];
        if (wrapped == nullptr) function.erase("type");
        tools.push_back({{"type", "function"}, {"function", check_function(std::move(function), place)}});
    }
    return tools;
}

Json check_function(Json function, const std::string& place) {
    const Fields fields(function, place + ".function");
    const std::string name = fields.required_text("name");
    const bool is_printable = std::none_of(name.begin(), name.end(), [](char c) {
        return static_cast<unsigned char>(c) <= 0x20 || c == '"' || c == '<' || c == '>';
    });
    if (name.empty() || !is_printable)
        fields.refuse("name", "must have no spaces, quotes or angle brackets, and not be empty");
    fields.text("description");
    fields.object("parameters");
    return function;
}

void read_tool_choice(const Fields& request, Conversation& conversation) {
    const Json* choice = request.find("tool_choice");
    if (choice == nullptr) return;
    using Choice = Conversation::ToolChoice;
    if (choice->is_string()) {
        const std::string text = *request.one_of("tool_choice", {"none", "auto", "required"});
        if (text == "none") conversation.tool_choice = Choice::none;
        if (text == "required") conversation.tool_choice = Choice::required;
    } else {
        const Fields named(*choice, request.place("tool_choice"));
        const std::string type = named.required_text("type");
        if (type != "function") named.refuse("type", "must be function");
        const Json* function = named.object("function");
        conversation.tool_name = function != nullptr
                                     ? Fields(*function, named.place("function")).required_text("name")
                                     : named.required_text("name");
        conversation.tool_choice = Choice::required;
        require_tool(request, conversation);
    }
    if (conversation.tool_choice == Choice::required && conversation.tools.empty())
        request.refuse("tool_choice", "asks for a call, but there are no tools");
}

void require_tool(const Fields& request, const Conversation& conversation) {
    const bool is_known =
        std::any_of(conversation.tools.begin(), conversation.tools.end(),
                    [&](const Json& tool) { return tool["function"]["name"] == conversation.tool_name; });
    if (!is_known)
        request.refuse("tool_choice", fmt::format("names '{}', which is none of the tools",
                                                  conversation.tool_name.substr(0, 80)));
}

void read_kwargs(const Fields& request, Conversation& conversation) {
    if (const Json* kwargs = request.object("chat_template_kwargs")) {
        const Fields fields(*kwargs, request.place("chat_template_kwargs"));
        conversation.kwargs = *kwargs;
        for (const char* name : {"enable_thinking", "thinking"})
            if (!fields.boolean(name).value_or(true)) conversation.thinks = false;
        if (const auto adds = fields.boolean("add_generation_prompt"))
            conversation.adds_generation_prompt = *adds;
    }
    const auto adds = request.boolean("add_generation_prompt");
    conversation.continues = request.boolean("continue_final_message").value_or(false);
    if (conversation.continues && adds.value_or(false))
        request.refuse("continue_final_message", "and add_generation_prompt exclude each other");
    if (adds) conversation.adds_generation_prompt = *adds;
    if (request.text("reasoning_effort") == "none") conversation.thinks = false;
}

void read_response_format(const Fields& request, Conversation& conversation) {
    const Json* given = request.object("response_format");
    if (given == nullptr) return;
    const Fields format(*given, request.place("response_format"));
    const std::string type = format.required_text("type");
    if (type == "json_object") {
        conversation.schema = R"({"type":"object"})";
    } else if (type == "json_schema") {
        const Json* wrapped = format.object("json_schema");
        if (wrapped == nullptr) format.refuse("json_schema", "is required");
        const Json* schema = wrapped->contains("schema") ? &(*wrapped)["schema"] : nullptr;
        if (schema == nullptr || !(schema->is_object() || schema->is_boolean()))
            format.refuse("json_schema", "must have a schema, which is an object");
        conversation.schema = to_text(*schema);
    } else if (type != "text") {
        format.refuse("type", "must be text, json_object or json_schema");
    }
}

// Reads the reasoning budget from the fields of llama.cpp, vLLM and OpenRouter.
void read_reasoning_budget(const Fields& request, Conversation& conversation) {
    for (const char* name : {"thinking_budget_tokens", "thinking_token_budget", "max_reasoning_tokens"})
        set_reasoning_budget(request.integer(name, -1, int64_t{1} << 40), conversation);
    if (const Json* reasoning = request.find("reasoning"); reasoning != nullptr && reasoning->is_object()) {
        const Fields fields(*reasoning, request.place("reasoning"));
        set_reasoning_budget(fields.integer("max_tokens", 0, int64_t{1} << 40), conversation);
        if (fields.text("effort") == "none") conversation.thinks = false;
    }
}

Conversation read_conversation(const Fields& request, Serving& serving) {
    Conversation conversation;
    set_reasoning_budget(serving.options.reasoning_budget, conversation);
    const Json& messages = request.required_array("messages");
    if (messages.empty()) request.refuse("messages", "is empty");
    for (size_t i = 0; i < messages.size(); ++i) {
        const Fields message(messages[i], fmt::format("messages[{}]", i));
        add_message(read_message(message), conversation, serving);
    }
    conversation.tools = read_tools(request);
    read_tool_choice(request, conversation);
    conversation.parallel_calls = request.boolean("parallel_tool_calls").value_or(true);
    read_kwargs(request, conversation);
    read_reasoning_budget(request, conversation);
    if (conversation.continues && conversation.messages.back()["role"] != "assistant")
        request.refuse("continue_final_message", "needs a last message of the assistant");
    read_response_format(request, conversation);
    return conversation;
}

}  // namespace server
