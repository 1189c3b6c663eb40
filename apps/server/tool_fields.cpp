// SPDX-License-Identifier: Apache-2.0
#include "tool_fields.h"

#include <algorithm>
#include <optional>
#include <unordered_set>

#include <fmt/format.h>

#include "request_log.h"

namespace server {

namespace {

using Choice = Turn::ToolChoice;

// Returns the function of a tool after it has checked its name and parameters.
Json check_function(Json function, const std::string& place) {
    const Fields fields(function, place);
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

// Returns a tool in Anthropic's form as a function.
Json from_anthropic(const Fields& tool) {
    Json function = {{"name", tool.required_text("name")}};
    if (const auto description = tool.text("description")) function["description"] = *description;
    const Json* schema = tool.object("input_schema");
    if (schema == nullptr) tool.refuse("input_schema", "is required");
    function["parameters"] = *schema;
    return function;
}

// Returns the function of a tool; nothing for a tool that is not a function of the client.
std::optional<Json> function_of(const Json& value, const std::string& place, ToolForm form) {
    const Fields tool(value, place);
    const bool is_messages = form == ToolForm::messages;
    const std::string type = tool.text("type").value_or(is_messages ? "custom" : "function");
    if (type == "custom" && (is_messages || tool.has("input_schema")))
        return check_function(from_anthropic(tool), place);
    if (type != "function") return std::nullopt;
    if (const Json* wrapped = tool.object("function")) return check_function(*wrapped, place + ".function");
    if (tool.has("input_schema")) return check_function(from_anthropic(tool), place);
    Json function = value;
    function.erase("type");
    return check_function(std::move(function), place + ".function");
}

void add_tool(Json function, Turn& turn) {
    turn.tools.push_back({{"type", "function"}, {"function", std::move(function)}});
}

bool has_tool(const Turn& turn, const std::string& name) {
    return std::any_of(turn.tools.begin(), turn.tools.end(),
                       [&](const Json& tool) { return tool["function"]["name"] == name; });
}

// Sets the one function that the answer must call.
void require_tool(const Fields& request, const char* field, const std::string& name, Turn& turn) {
    if (!has_tool(turn, name))
        request.refuse(field, fmt::format("names '{}', which is none of the tools", name.substr(0, 80)));
    turn.tool_choice = Choice::required;
    turn.tool_name = name;
}

// Returns the name of the function in a choice or an allowed tool: {"function": {"name"}} or {"name"}.
std::string chosen_name(const Fields& choice) {
    const Json* function = choice.object("function");
    return function != nullptr ? Fields(*function, choice.place("function")).required_text("name")
                               : choice.required_text("name");
}

// Keeps the tools that a choice of the type allowed_tools lists.
void keep_allowed(const Fields& request, const Fields& choice, Turn& turn) {
    const Json* wrapped = choice.object("allowed_tools");
    const Fields allowed(wrapped != nullptr ? *wrapped : *request.find("tool_choice"),
                         wrapped != nullptr ? choice.place("allowed_tools") : "tool_choice");
    const std::string mode = allowed.one_of("mode", {"auto", "required"}).value_or("auto");
    std::unordered_set<std::string> names;
    const Json& list = allowed.required_array("tools");
    for (size_t i = 0; i < list.size(); ++i) {
        const Fields tool(list[i], fmt::format("{}[{}]", allowed.place("tools"), i));
        const bool is_function = tool.text("type").value_or("function") == "function";
        if (!is_function) continue;  // it is not offered either
        const std::string name = chosen_name(tool);
        if (!has_tool(turn, name))
            request.refuse("tool_choice",
                           fmt::format("names '{}', which is none of the tools", name.substr(0, 80)));
        names.insert(name);
    }
    Json kept = Json::array();
    for (Json& tool : turn.tools)
        if (names.contains(tool["function"]["name"].get<std::string>())) kept.push_back(std::move(tool));
    turn.tools = std::move(kept);
    if (mode == "required") turn.tool_choice = Choice::required;
}

void take_word(const std::string& word, Turn& turn) {
    if (word == "none") turn.tool_choice = Choice::none;
    if (word == "required" || word == "any") turn.tool_choice = Choice::required;
}

void read_choice_object(const Fields& request, const Json& given, Turn& turn) {
    const Fields choice(given, request.place("tool_choice"));
    if (!choice.has("type") && !choice.has("function")) choice.refuse("type", "is required");
    const std::string type = choice.text("type").value_or("function");
    if (choice.boolean("disable_parallel_tool_use").value_or(false)) turn.parallel_calls = false;
    if (type == "auto" || type == "none" || type == "required" || type == "any") {
        take_word(type, turn);
    } else if (type == "function" || type == "tool") {
        require_tool(request, "tool_choice", chosen_name(choice), turn);
    } else if (type == "allowed_tools") {
        keep_allowed(request, choice, turn);
    } else {
        choice.refuse("type", fmt::format("is '{}'; it must be auto, none, required, any, function, tool or "
                                          "allowed_tools",
                                          type.substr(0, 40)));
    }
}

// Reads `function_call`, which came before `tool_choice`.
void read_function_call(const Fields& request, Turn& turn) {
    const Json* given = request.find("function_call");
    if (given == nullptr) return;
    if (request.has("tool_choice")) request.refuse("function_call", "and tool_choice exclude each other");
    if (given->is_string()) return take_word(*request.one_of("function_call", {"none", "auto"}), turn);
    const Fields named(*given, request.place("function_call"));
    require_tool(request, "function_call", named.required_text("name"), turn);
}

}  // namespace

void read_tools(const Fields& request, ToolForm form, Turn& turn) {
    const Json* tools = request.array("tools");
    const Json* functions = request.array("functions");
    if (functions != nullptr && tools != nullptr) request.refuse("functions", "and tools exclude each other");
    std::optional<size_t> first_hosted;
    for (size_t i = 0; tools != nullptr && i < tools->size(); ++i) {
        auto function = function_of((*tools)[i], fmt::format("{}[{}]", request.place("tools"), i), form);
        if (function) {
            add_tool(std::move(*function), turn);
            continue;
        }
        if (!first_hosted) first_hosted = i;
        const std::string type = (*tools)[i]["type"];
        note_once("tool " + type,
                  fmt::format("tools of the type '{}' are left out: only functions of the client "
                              "are possible",
                              type.substr(0, 60)));
    }
    if (first_hosted && turn.tools.empty() && form != ToolForm::responses) {
        const Json& tool = (*tools)[*first_hosted];
        Fields(tool, fmt::format("{}[{}]", request.place("tools"), *first_hosted))
            .refuse("type", fmt::format("is '{}'; only functions of the client are possible",
                                        tool["type"].get<std::string>().substr(0, 40)));
    }
    for (size_t i = 0; functions != nullptr && i < functions->size(); ++i)
        add_tool(check_function((*functions)[i], fmt::format("{}[{}]", request.place("functions"), i)), turn);
    if (functions != nullptr) {
        turn.answers_with_function_call = true;
        turn.parallel_calls = false;
    }
}

void read_tool_choice(const Fields& request, Turn& turn) {
    if (const auto parallel = request.boolean("parallel_tool_calls"))
        turn.parallel_calls = *parallel && !turn.answers_with_function_call;
    const Json* choice = request.find("tool_choice");
    if (choice != nullptr && choice->is_string()) {
        take_word(*request.one_of("tool_choice", {"none", "auto", "required", "any"}), turn);
    } else if (choice != nullptr) {
        read_choice_object(request, *choice, turn);
    }
    read_function_call(request, turn);
    if (turn.tool_choice == Choice::required && turn.tools.empty())
        request.refuse(request.has("function_call") ? "function_call" : "tool_choice",
                       "asks for a call, but there are no tools");
}

}  // namespace server
