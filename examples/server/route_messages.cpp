// SPDX-License-Identifier: Apache-2.0
// POST /v1/messages and /v1/messages/count_tokens
#include <fmt/format.h>

#include "conversation.h"
#include "openai_fields.h"
#include "routes.h"

namespace server {

namespace {

// Returns the text of a content: a string, or the text blocks of a list with `join` between them.
std::string block_text(const Fields& owner, const char* name, const char* join) {
    const Json* content = owner.find(name);
    if (content == nullptr) return {};
    if (content->is_string()) return *content;
    if (!content->is_array())
        owner.refuse(name, fmt::format("must be a string or a list of blocks, not {}", kind_of(*content)));
    std::string text;
    for (size_t i = 0; i < content->size(); ++i) {
        const Fields block((*content)[i], fmt::format("{}[{}]", owner.place(name), i));
        const std::string type = block.required_text("type");
        if (type != "text")
            block.refuse("type", fmt::format("is '{}'; this model reads text only", type.substr(0, 40)));
        if (i > 0) text += join;
        text += block.required_text("text");
    }
    return text;
}

// Adds an assistant's message from its blocks: text, thoughts and calls.
void add_assistant(const Fields& message, const Json& blocks, Conversation& conversation, Serving& serving) {
    Json result = {{"role", "assistant"}, {"content", ""}};
    Json calls = Json::array();
    std::string reasoning;
    for (size_t i = 0; i < blocks.size(); ++i) {
        const Fields block(blocks[i], fmt::format("{}[{}]", message.place("content"), i));
        const std::string type = block.required_text("type");
        if (type == "text") {
            result["content"].get_ref<std::string&>() += block.required_text("text");
        } else if (type == "thinking") {
            reasoning += block.required_text("thinking");
        } else if (type == "tool_use") {
            const Json* input = block.object("input");
            calls.push_back({{"id", block.required_text("id")},
                             {"type", "function"},
                             {"function",
                              {{"name", block.required_text("name")},
                               {"arguments", input != nullptr ? *input : Json::object()}}}});
        } else if (type != "redacted_thinking") {
            block.refuse(
                "type", fmt::format("is '{}', which an assistant's message cannot have", type.substr(0, 40)));
        }
    }
    if (!reasoning.empty()) result["reasoning_content"] = reasoning;
    if (!calls.empty()) result["tool_calls"] = std::move(calls);
    add_message(std::move(result), conversation, serving);
}

// Adds a user's message from its blocks. Results of tools come before the text, as messages of their own.
void add_user(const Fields& message, const Json& blocks, Conversation& conversation, Serving& serving) {
    std::string text;
    bool has_text = false;
    for (size_t i = 0; i < blocks.size(); ++i) {
        const Fields block(blocks[i], fmt::format("{}[{}]", message.place("content"), i));
        const std::string type = block.required_text("type");
        if (type == "text") {
            text += block.required_text("text");
            has_text = true;
        } else if (type == "tool_result") {
            add_message({{"role", "tool"},
                         {"tool_call_id", block.required_text("tool_use_id")},
                         {"content", block_text(block, "content", "\n")}},
                        conversation, serving);
        } else {
            block.refuse("type", fmt::format("is '{}'; this model reads text only", type.substr(0, 40)));
        }
    }
    if (has_text || blocks.empty()) add_message({{"role", "user"}, {"content", text}}, conversation, serving);
}

void read_messages(const Fields& request, Conversation& conversation, Serving& serving) {
    add_message({{"role", "system"}, {"content", block_text(request, "system", "\n\n")}}, conversation,
                serving);
    const Json& messages = request.required_array("messages");
    if (messages.empty()) request.refuse("messages", "is empty");
    for (size_t i = 0; i < messages.size(); ++i) {
        const Fields message(messages[i], fmt::format("messages[{}]", i));
        const std::string role = message.required_text("role");
        const Json* content = message.find("content");
        if (content == nullptr) message.refuse("content", "is required");
        if (role != "user" && role != "assistant" && role != "system")
            message.refuse("role", fmt::format("is '{}'; it must be user or assistant", role.substr(0, 40)));
        if (content->is_string() || role == "system") {
            add_message({{"role", role}, {"content", block_text(message, "content", "\n\n")}}, conversation,
                        serving);
        } else if (!content->is_array()) {
            message.refuse("content",
                           fmt::format("must be a string or a list of blocks, not {}", kind_of(*content)));
        } else if (role == "user") {
            add_user(message, *content, conversation, serving);
        } else {
            add_assistant(message, *content, conversation, serving);
        }
    }
    // If the last message is the assistant's, it is the start of the answer.
    conversation.continues = conversation.messages.back()["role"] == "assistant";
}

void read_anthropic_tools(const Fields& request, Conversation& conversation) {
    const Json* tools = request.array("tools");
    if (tools == nullptr) return;
    for (size_t i = 0; i < tools->size(); ++i) {
        const std::string place = fmt::format("tools[{}]", i);
        const Fields tool((*tools)[i], place);
        const std::string type = tool.text("type").value_or("custom");
        if (type != "custom")
            tool.refuse("type", fmt::format("is '{}'; tools that run on the server are not possible",
                                            type.substr(0, 40)));
        Json function = {{"name", tool.required_text("name")}};
        if (const auto description = tool.text("description")) function["description"] = *description;
        const Json* schema = tool.object("input_schema");
        if (schema == nullptr) tool.refuse("input_schema", "is required");
        function["parameters"] = *schema;
        conversation.tools.push_back(
            {{"type", "function"}, {"function", check_function(std::move(function), place)}});
    }
}

void read_anthropic_choice(const Fields& request, Conversation& conversation) {
    const Json* given = request.object("tool_choice");
    if (given == nullptr) return;
    using Choice = Conversation::ToolChoice;
    const Fields choice(*given, "tool_choice");
    if (!choice.has("type")) choice.refuse("type", "is required");
    const std::string type = *choice.one_of("type", {"auto", "any", "tool", "none"});
    conversation.parallel_calls = !choice.boolean("disable_parallel_tool_use").value_or(false);
    if (type == "none") conversation.tool_choice = Choice::none;
    if (type == "any" || type == "tool") conversation.tool_choice = Choice::required;
    if (type == "tool") {
        conversation.tool_name = choice.required_text("name");
        require_tool(request, conversation);
    }
    if (conversation.tool_choice == Choice::required && conversation.tools.empty())
        request.refuse("tool_choice", "asks for a call, but there are no tools");
}

// Reads `thinking`. Returns whether the answer has thinking blocks.
bool read_thinking(const Fields& request, Conversation& conversation) {
    const Json* given = request.object("thinking");
    if (given == nullptr) return false;
    const Fields thinking(*given, "thinking");
    if (!thinking.has("type")) thinking.refuse("type", "is required");
    const std::string type = *thinking.one_of("type", {"enabled", "disabled", "adaptive"});
    const auto budget = thinking.integer("budget_tokens", 1, int64_t{1} << 40);
    conversation.thinks = type != "disabled";
    if (type == "enabled") set_reasoning_budget(budget, conversation);
    return conversation.thinks;
}

Conversation read_anthropic(const Fields& request, Serving& serving) {
    Conversation conversation;
    set_reasoning_budget(serving.options.reasoning_budget, conversation);
    read_messages(request, conversation, serving);
    read_anthropic_tools(request, conversation);
    read_anthropic_choice(request, conversation);
    return conversation;
}

SamplingFields read_anthropic_sampling(const Fields& request, const Serving& serving) {
    SamplingFields fields;
    fields.temperature = request.number("temperature", 0, 2).value_or(*serving.sampling.temperature);
    fields.top_p = request.number("top_p", 0, 1).value_or(*serving.sampling.top_p);
    fields.top_k = request.integer("top_k", 0, int64_t{1} << 30).value_or(*serving.sampling.top_k);
    fields.min_p = *serving.sampling.min_p;
    fields.repetition_penalty = *serving.sampling.repetition_penalty;
    fields.penalty_last_n = serving.sampling.penalty_last_n;
    fields.seed = request.integer("seed");
    fields.max_tokens = request.integer("max_tokens", 0, int64_t{1} << 40);
    if (!fields.max_tokens) request.refuse("max_tokens", "is required");
    fields.stops = read_stops(request, "stop_sequences");
    request.object("metadata");
    request.text("service_tier");
    return fields;
}

}  // namespace

Prepared messages(const HttpRequest& http, Serving& serving) {
    const Json body = parse_body(http.body);
    const Fields request(body);
    AnswerForm form = read_form(request, serving, "msg_");
    const SamplingFields fields = read_anthropic_sampling(request, serving);
    Conversation conversation = read_anthropic(request, serving);
    const bool shows_thinking = read_thinking(request, conversation);
    const ChatPrompt prompt = make_prompt(conversation, serving);

    form.n_prompt = prompt.ids->size();
    const bool is_stream = form.is_stream;
    Plan plan(MessagesWriter(std::move(form), shows_thinking));
    plan.family = ApiFamily::anthropic;
    plan.answers = plan_choices(prompt.ids, fields, prompt.constraint.get(), prompt.reasoning_budget);
    plan.format = prompt.format;
    plan.format.reasoning = MINIM_REASONING_SPLIT;
    plan.stops = fields.stops;
    plan.is_stream = is_stream;
    plan.wants_no_token = fields.max_tokens == 0;
    plan.has_one_call = !conversation.parallel_calls;
    plan.is_remembered = !conversation.continues;
    return plan;
}

Prepared count_tokens(const HttpRequest& http, Serving& serving) {
    const Json body = parse_body(http.body);
    const Fields request(body);
    Conversation conversation = read_anthropic(request, serving);
    read_thinking(request, conversation);
    HttpResponse response;
    response.body = to_text({{"input_tokens", make_prompt(conversation, serving).ids->size()}});
    return response;
}

}  // namespace server
