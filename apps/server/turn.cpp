// SPDX-License-Identifier: Apache-2.0
#include "turn.h"

#include <string_view>

#include <fmt/format.h>

#include "content.h"
#include "request_log.h"
#include "thinking_fields.h"
#include "tool_fields.h"

namespace server {

namespace {

bool is_m3(const ServedModel& serving) {
    return serving.markup.format == MINIM_CHAT_FORMAT_M3;
}

// Returns whether the model may think. Templates of M3 have a thinking mode for it.
bool thinks(const Turn& turn, const ServedModel& serving) {
    return turn.thinks && !(is_m3(serving) && turn.has_minimal_effort);
}

// Returns the variables for the template, including whether it adds a generation prompt.
std::string kwargs_of(const Turn& turn, const ServedModel& serving) {
    Json kwargs = Json::object();
    if (!serving.options.chat_kwargs.empty()) kwargs = Json::parse(serving.options.chat_kwargs);
    if (turn.kwargs.is_object()) kwargs.update(turn.kwargs);
    // Removes variables that the template does not have, which would cause a warning: thinking is turned off without them.
    const auto has_no = [&](const char* name) {
        return !serving.chat_template.empty() && serving.chat_template.find(name) == std::string::npos;
    };
    for (const char* name : {"enable_thinking", "thinking"})
        if (is_m3(serving) || has_no(name)) kwargs.erase(name);
    if (is_m3(serving) && !turn.thinking_mode.empty() && thinks(turn, serving) &&
        !kwargs.contains("thinking_mode"))
        kwargs["thinking_mode"] = turn.thinking_mode;
    kwargs["add_generation_prompt"] = turn.adds_generation_prompt && !turn.continues;
    return to_text(kwargs);
}

// Returns the tools for the prompt. With `none` the model must not call tools, so the prompt does not mention them.
std::string tools_of(const Turn& turn) {
    const bool are_hidden = turn.tools.empty() || turn.tool_choice == Turn::ToolChoice::none;
    return are_hidden ? std::string() : to_text(turn.tools);
}

// Throws an ApiError for an error of the library that the client's input caused.
[[noreturn]] void refuse(const minim::Exception& error, const char* field) {
    switch (error.status()) {
        case MINIM_E_INVALID:
        case MINIM_E_UNSUPPORTED:
        case MINIM_E_CONTEXT_FULL:
            throw ApiError{400, fmt::format("{}: {}", field, error.what()), field, ""};
        default:
            throw ApiError{503, error.what(), "", ""};
    }
}

// Adds a reminder to the tool result before it. Returns whether it did.
bool joins_tool_result(const Json& message, Turn& turn) {
    if (turn.messages.empty() || turn.messages.back()["role"] != "tool") return false;
    const std::string& text = message["content"].get_ref<const std::string&>();
    if (!is_reminder(text)) return false;
    Json& result = turn.messages.back()["content"];
    if (result.is_string()) {
        result.get_ref<std::string&>().append("\n\n").append(text);
    } else {
        result.push_back({{"type", "text"}, {"text", text}});
    }
    return true;
}

// Returns whether the last answer before this point has calls, so that a tool result may follow.
bool awaits_result(const Json& messages) {
    for (auto message = messages.rbegin(); message != messages.rend(); ++message)
        if ((*message)["role"] == "assistant")
            return message->contains("tool_calls") && !(*message)["tool_calls"].empty();
    return false;
}

// Makes a text of the user of a tool result whose call is not there, because the client cut the conversation before it. The
// template would refuse it, and the client cannot take it back.
Json without_call(const Json& result) {
    std::string text = "Result of a tool call that was left out:";
    const Json& content = result["content"];
    if (content.is_string()) text.append("\n").append(content.get_ref<const std::string&>());
    if (content.is_array())
        for (const Json& part : content) text.append("\n").append(text_member(part, "text"));
    note_once("result without a call", "a tool result whose call is not in the conversation becomes a text");
    return {{"role", "user"}, {"content", text}};
}

// Returns the system message, which only the owner's message may precede. Adds it if there is none.
Json& system_message(Turn& turn) {
    Json& messages = turn.messages;
    const size_t place = !messages.empty() && messages.front()["role"] == "root" ? 1 : 0;
    if (messages.size() == place || messages[place]["role"] != "system")
        messages.insert(messages.begin() + static_cast<std::ptrdiff_t>(place),
                        Json{{"role", "system"}, {"content", ""}});
    return messages[place];
}

bool has_reasoning(const Json& message, const ServedModel& serving) {
    const auto it = message.find("reasoning_content");
    if (it != message.end() && it->is_string()) return true;
    return message["content"].get_ref<const std::string&>().find(serving.markup.think_end) !=
           std::string::npos;
}

// Returns how the library renders the conversation.
minim::ChatOptions chat_options(const Turn& turn, const ServedModel& serving) {
    minim::ChatOptions options;
    options.tools = tools_of(turn);
    options.kwargs = kwargs_of(turn, serving);
    options.thinking_off = !thinks(turn, serving);
    options.continue_final_message = turn.continues;
    return options;
}

// Leaves only the last n tokens of a prompt; all with -1.
void keep_end(std::vector<int32_t>& ids, int64_t n) {
    const auto count = static_cast<int64_t>(ids.size());
    if (n >= 0 && n < count) ids.erase(ids.begin(), ids.end() - n);
}

// Returns a lower bound of the prompt's tokens, without rendering it: the texts that every template keeps, by the longest token.
size_t least_tokens(const Turn& turn, const ServedModel& serving) {
    size_t n_bytes = 0;
    for (const Json& message : turn.messages) {
        const Json& content = message["content"];
        if (message["role"] != "assistant" && content.is_string())
            n_bytes += content.get_ref<const std::string&>().size();
    }
    return n_bytes / serving.longest_token;
}

// Returns what may precede a constrained answer to a prompt.
Preamble preamble_of(const Turn& turn, const std::vector<int32_t>& ids, bool opens_reasoning,
                     const ServedModel& serving) {
    if (opens_reasoning) return Preamble::reasoning;
    const bool begins = turn.adds_generation_prompt && !turn.continues;
    return begins && serving.model.chat_may_reason(ids) ? Preamble::optional_reasoning : Preamble::none;
}

// Returns a constraint that makes optional calls fit the tools. Returns null if it cannot be made: the request works without it.
std::shared_ptr<const minim::Constraint> optional_calls(const std::string& tools, const Turn& turn,
                                                        const ChatPrompt& prompt, ServedModel& serving) {
    if (!serving.options.constrains_calls) return nullptr;
    try {
        return serving.constraints.of_tools(
            tools, "", !turn.parallel_calls,
            prompt.format.starts_in_reasoning ? Preamble::reasoning : Preamble::none,
            /*optional=*/true);
    } catch (const minim::Exception& error) {
        note_once(fmt::format("tools {}", error.what()),
                  fmt::format("tool calls are not constrained: {}", error.what()));
        return nullptr;
    }
}

}  // namespace

std::string without_billing_header(const std::string& system) {
    constexpr std::string_view k_header = "x-anthropic-billing-header";
    if (system.find(k_header) == std::string::npos) return system;
    std::string kept;
    for (size_t begin = 0; begin < system.size();) {
        const size_t newline = system.find('\n', begin);
        const size_t end = newline == std::string::npos ? system.size() : newline + 1;
        const std::string_view line = std::string_view(system).substr(begin, end - begin);
        const size_t text = line.find_first_not_of(" \t");
        if (text == std::string_view::npos || !line.substr(text).starts_with(k_header)) kept += line;
        begin = end;
    }
    const size_t text = kept.find_first_not_of('\n');
    return text == std::string::npos ? std::string() : kept.substr(text);
}

void add_message(Json message, Turn& turn, ServedModel& serving) {
    const std::string role = message["role"];
    if (role == "system") {
        const std::string text = without_billing_header(message["content"].get<std::string>());
        Json& whole = system_message(turn);
        std::string& system = whole["content"].get_ref<std::string&>();
        if (!system.empty() && !text.empty()) system += "\n\n";
        system += text;
        for (const char* field : {"current_date", "current_location"}) {
            if (message.contains(field)) whole[field] = message[field];
        }
        return;
    }
    const bool has_calls = message.contains("tool_calls") && !message["tool_calls"].empty();
    if (role == "assistant" && has_calls && serving.options.remembers_reasoning &&
        !has_reasoning(message, serving)) {
        const Json& id = message["tool_calls"].front()["id"];
        if (id.is_string())
            if (const auto reasoning = serving.reasoning.find(id)) message["reasoning_content"] = *reasoning;
    }
    if (role == "tool" && !awaits_result(turn.messages)) message = without_call(message);
    if (role == "user" && joins_tool_result(message, turn)) return;
    turn.messages.push_back(std::move(message));
}

void check_length(size_t n_tokens, const ServedModel& serving, const char* field, ApiFamily family,
                  bool is_bound) {
    if (n_tokens < static_cast<size_t>(serving.n_context)) return;
    // Clients look for these words, which are those of the two APIs.
    const std::string message =
        family == ApiFamily::anthropic
            ? fmt::format("prompt is too long: {} tokens > {} maximum{}", n_tokens, serving.n_context - 1,
                          is_bound ? " (it has at least so many)" : "")
            : fmt::format(
                  "This model's maximum context length is {} tokens. However, the prompt has {}{} tokens, "
                  "and at most {} are possible with an answer.",
                  serving.n_context, is_bound ? "at least " : "", n_tokens, serving.n_context - 1);
    throw ApiError{400, message, field, "context_length_exceeded"};
}

std::string render(const Turn& turn, const ServedModel& serving) {
    try {
        return serving.model.chat_render_with(to_text(turn.messages), chat_options(turn, serving)).str();
    } catch (const minim::Exception& error) {
        refuse(error, "messages");
    }
}

void set_reasoning_budget(std::optional<int64_t> n_tokens, Turn& turn) {
    if (!n_tokens || *n_tokens < 0) return;
    turn.thinks = *n_tokens > 0;
    if (*n_tokens == 0) return;
    turn.reasoning_budget = n_tokens;
}

std::vector<int32_t> prompt_ids(const Turn& turn, ServedModel& serving) {
    std::vector<int32_t> ids;
    try {
        const minim::Tokens rendered = serving.model.chat_tokenize_with(
            to_text(turn.messages), chat_options(turn, serving), MINIM_SPECIALS_TEMPLATE);
        ids = serving.turns.splice({rendered.begin(), rendered.end()});
    } catch (const minim::Exception& error) {
        refuse(error, "messages");
    }
    if (turn.n_kept_tokens) keep_end(ids, *turn.n_kept_tokens);
    return ids;
}

std::shared_ptr<const minim::Constraint> constraint_of(const TextRule& rule, Preamble preamble,
                                                       ServedModel& serving) {
    if (rule.kind == TextRule::Kind::any) return nullptr;
    try {
        return serving.constraints.of_rule(rule, preamble);
    } catch (const minim::Exception& error) {
        refuse(error, rule.field.c_str());
    }
}

void read_common(const Fields& request, ToolForm form, Turn& turn) {
    read_tools(request, form, turn);
    read_tool_choice(request, turn);
    read_template_fields(request, turn);
    read_thinking(request, turn);
    turn.rule = read_text_rule(request);
    turn.n_kept_tokens = request.integer("truncate_prompt_tokens", -1, int64_t{1} << 40);
    if (turn.n_kept_tokens == 0) request.refuse("truncate_prompt_tokens", "must be at least 1, or -1");
}

ChatPrompt make_prompt(const Turn& turn, ServedModel& serving, ApiFamily family) {
    ChatPrompt prompt;
    const std::string tools = tools_of(turn);
    prompt.format.reasoning = turn.reasoning.value_or(serving.options.reasoning);
    prompt.format.tools = tools;
    prompt.format.chat_format = serving.markup.format;
    if (!turn.n_kept_tokens)
        check_length(least_tokens(turn, serving), serving, "messages", family, /*is_bound=*/true);
    std::vector<int32_t> ids = prompt_ids(turn, serving);
    check_length(ids.size(), serving, "messages", family);
    prompt.format.starts_in_reasoning = serving.model.chat_opens_thinking(ids);
    // M3 may also open its reasoning itself.
    if (prompt.format.starts_in_reasoning || is_m3(serving))
        prompt.reasoning_budget = turn.reasoning_budget.value_or(0);
    prompt.ids = std::make_shared<const std::vector<int32_t>>(std::move(ids));

    const Preamble preamble = preamble_of(turn, *prompt.ids, prompt.format.starts_in_reasoning, serving);
    if (turn.tool_choice == Turn::ToolChoice::required) {
        try {
            prompt.constraint = serving.constraints.of_tools(tools, turn.tool_name, !turn.parallel_calls,
                                                             preamble, /*optional=*/false);
        } catch (const minim::Exception& error) {
            refuse(error, "tools");
        }
        return prompt;  // an answer that is a call has no text that a rule could be for
    }
    prompt.constraint = constraint_of(turn.rule, preamble, serving);
    if (prompt.constraint && !tools.empty())
        note_once(
            "rule and tools",
            fmt::format("{} applies to the whole answer: such an answer calls no tools", turn.rule.field));
    if (!prompt.constraint && !tools.empty())
        prompt.constraint = optional_calls(tools, turn, prompt, serving);
    return prompt;
}

}  // namespace server
