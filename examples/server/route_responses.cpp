// SPDX-License-Identifier: Apache-2.0
// POST /v1/responses
#include <fmt/format.h>

#include "conversation.h"
#include "openai_fields.h"
#include "routes.h"

namespace server {

namespace {

// Returns the text of a message's content or a call's output.
std::string item_text(const Fields& item, const char* name) {
    const Json* content = item.find(name);
    if (content == nullptr) return {};
    if (content->is_string()) return *content;
    if (!content->is_array())
        item.refuse(name, fmt::format("must be a string or a list of parts, not {}", kind_of(*content)));
    std::string text;
    for (size_t i = 0; i < content->size(); ++i) {
        const Fields part((*content)[i], fmt::format("{}[{}]", item.place(name), i));
        const std::string type = part.required_text("type");
        if (type == "refusal") continue;
        if (type != "input_text" && type != "output_text" && type != "text" && type != "reasoning_text" &&
            type != "summary_text")
            part.refuse("type", fmt::format("is '{}'; this model reads text only", type.substr(0, 40)));
        text += part.required_text("text");
    }
    return text;
}

// Joins the items of one turn of the assistant (thoughts, text, calls) into one message.
class Turns {
  public:
    Turns(Conversation& conversation, Serving& serving) : conversation_(conversation), serving_(serving) {}

    void add(const Fields& item) {
        const std::string type = item.text("type").value_or("message");
        if (type == "message") {
            add_message_item(item);
        } else if (type == "reasoning") {
            std::string text = item_text(item, "content");
            if (text.empty()) text = item_text(item, "summary");
            if (open_.contains("tool_calls") || has_text()) close();
            begin();
            if (!text.empty()) open_["reasoning_content"] = open_.value("reasoning_content", "") + text;
        } else if (type == "function_call") {
            add_call(item);
        } else if (type == "function_call_output") {
            close();
            add_message({{"role", "tool"},
                         {"tool_call_id", item.required_text("call_id")},
                         {"content", item_text(item, "output")}},
                        conversation_, serving_);
        } else {
            item.refuse("type", fmt::format("is '{}', which is not possible here", type.substr(0, 40)));
        }
    }

    void close() {
        if (open_.is_null()) return;
        add_message(std::move(open_), conversation_, serving_);
        open_ = nullptr;
    }

  private:
    bool has_text() const {
        return !open_.is_null() && !open_["content"].get_ref<const std::string&>().empty();
    }

    void begin() {
        if (open_.is_null()) open_ = {{"role", "assistant"}, {"content", ""}};
    }

    void add_message_item(const Fields& item) {
        std::string role = item.required_text("role");
        if (role == "developer") role = "system";
        if (role != "system" && role != "user" && role != "assistant")
            item.refuse("role", fmt::format("is '{}'; it must be system, developer, user or assistant",
                                            role.substr(0, 40)));
        const std::string text = item_text(item, "content");
        if (role != "assistant") {
            close();
            add_message({{"role", role}, {"content", text}}, conversation_, serving_);
            return;
        }
        begin();
        open_["content"].get_ref<std::string&>() += text;
    }

    void add_call(const Fields& item) {
        const std::string arguments = item.text("arguments").value_or("");
        const bool is_empty = arguments.find_first_not_of(" \t\r\n") == std::string::npos;
        if (!is_empty && !Json::parse(arguments, nullptr, false).is_object())
            item.refuse("arguments", "is not the text of a JSON object");
        begin();
        open_["tool_calls"].push_back(
            {{"id", item.required_text("call_id")},
             {"type", "function"},
             {"function",
              {{"name", item.required_text("name")}, {"arguments", is_empty ? "{}" : arguments}}}});
    }

    Conversation& conversation_;
    Serving& serving_;
    Json open_;  // a message of the assistant, or null
};

void read_input(const Fields& request, Conversation& conversation, Serving& serving) {
    if (const auto instructions = request.text("instructions"))
        add_message({{"role", "system"}, {"content", *instructions}}, conversation, serving);
    const Json* input = request.find("input");
    if (input == nullptr) request.refuse("input", "is required");
    if (input->is_string()) {
        add_message({{"role", "user"}, {"content", *input}}, conversation, serving);
        return;
    }
    if (!input->is_array() || input->empty())
        request.refuse("input", "must be a string or a list of items, and not empty");
    Turns turns(conversation, serving);
    for (size_t i = 0; i < input->size(); ++i) turns.add(Fields((*input)[i], fmt::format("input[{}]", i)));
    turns.close();
}

// Returns the request's tools without those that run on a provider's servers. Clients always offer such tools, and the model
// can do without them.
Json without_hosted_tools(const Fields& request) {
    const Json* tools = request.array("tools");
    if (tools == nullptr) return Json::object();
    Json kept = Json::array();
    for (size_t i = 0; i < tools->size(); ++i) {
        const Fields tool((*tools)[i], fmt::format("tools[{}]", i));
        if (tool.required_text("type") == "function") kept.push_back((*tools)[i]);
    }
    return {{"tools", std::move(kept)}};
}

void read_text_format(const Fields& request, Conversation& conversation) {
    const Json* text = request.object("text");
    if (text == nullptr) return;
    const Json* given = Fields(*text, "text").object("format");
    if (given == nullptr) return;
    const Fields format(*given, "text.format");
    const std::string type = format.required_text("type");
    if (type == "json_object") {
        conversation.schema = R"({"type":"object"})";
    } else if (type == "json_schema") {
        const Json* schema = format.object("schema");
        if (schema == nullptr) format.refuse("schema", "is required");
        conversation.schema = to_text(*schema);
    } else if (type != "text") {
        format.refuse("type", "must be text, json_object or json_schema");
    }
}

void refuse_unsupported(const Fields& request) {
    for (const char* name : {"previous_response_id", "conversation"})
        if (request.has(name)) request.refuse(name, "is not possible: nothing is stored");
    if (request.boolean("background").value_or(false))
        request.refuse("background", "is not possible: nothing is stored");
}

// Returns the fields of the request that the response repeats.
Json echo_of(const Json& body) {
    Json echo = Json::object();
    const Json usual = {{"instructions", nullptr},
                        {"max_output_tokens", nullptr},
                        {"metadata", Json::object()},
                        {"parallel_tool_calls", true},
                        {"temperature", nullptr},
                        {"top_p", nullptr},
                        {"tool_choice", "auto"},
                        {"tools", Json::array()},
                        {"text", {{"format", {{"type", "text"}}}}},
                        {"reasoning", nullptr},
                        {"truncation", "disabled"}};
    for (const auto& [name, value] : usual.items()) {
        const auto it = body.find(name);
        echo[name] = it == body.end() || it->is_null() ? value : *it;
    }
    return echo;
}

SamplingFields read_responses_sampling(const Fields& request, const Serving& serving) {
    SamplingFields fields = read_sampling(request, serving);
    if (fields.n_choices != 1) request.refuse("n", "must be 1");
    fields.max_tokens = request.integer("max_output_tokens", 0, int64_t{1} << 40);
    const auto top_logprobs = request.integer("top_logprobs", 0, k_most_top_logprobs);
    fields.n_top_logprobs = top_logprobs.value_or(0);
    bool is_included = false;
    if (const Json* include = request.array("include")) {
        for (const Json& name : *include) {
            if (!name.is_string()) request.refuse("include", "must have strings only");
            if (name == "message.output_text.logprobs") is_included = true;
        }
    }
    fields.has_logprobs = is_included || fields.n_top_logprobs > 0;
    return fields;
}

}  // namespace

Prepared responses(const HttpRequest& http, Serving& serving) {
    const Json body = parse_body(http.body);
    const Fields request(body);
    AnswerForm form = read_form(request, serving, "resp_");
    const SamplingFields fields = read_responses_sampling(request, serving);
    refuse_unsupported(request);
    Conversation conversation;
    set_reasoning_budget(serving.options.reasoning_budget, conversation);
    read_input(request, conversation, serving);
    const Json tools = without_hosted_tools(request);
    conversation.tools = read_tools(Fields(tools));
    read_tool_choice(request, conversation);
    conversation.parallel_calls = request.boolean("parallel_tool_calls").value_or(true);
    read_kwargs(request, conversation);
    read_reasoning_budget(request, conversation);
    read_text_format(request, conversation);
    const ChatPrompt prompt = make_prompt(conversation, serving);

    form.has_logprobs = fields.has_logprobs;
    form.n_prompt = prompt.ids->size();
    const bool is_stream = form.is_stream;
    Plan plan(ResponsesWriter(serving.model, std::move(form), echo_of(body)));
    plan.answers = plan_choices(prompt.ids, fields, prompt.constraint.get(), prompt.reasoning_budget);
    plan.format = prompt.format;
    plan.format.reasoning = MINIM_REASONING_SPLIT;
    plan.stops = fields.stops;
    plan.is_stream = is_stream;
    plan.keeps_tokens = fields.has_logprobs;
    plan.wants_no_token = fields.max_tokens == 0;
    plan.has_one_call = !conversation.parallel_calls;
    plan.is_remembered = !conversation.continues;
    return plan;
}

}  // namespace server
