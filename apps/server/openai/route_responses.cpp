// SPDX-License-Identifier: Apache-2.0
// POST /v1/responses
#include "peer_fields.h"
#include "routes.h"

namespace server {

namespace {

void refuse_unsupported(const Fields& request) {
    for (const char* name : {"prompt", "previous_response_id", "conversation"})
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

SamplingFields read_responses_sampling(const Fields& request, const ServedModel& serving) {
    SamplingFields fields = read_sampling(request, serving, "stop");
    if (fields.n_choices != 1) request.refuse("n", "must be 1");
    fields.max_tokens = read_max_tokens(request, {"max_output_tokens"});
    fields.n_top_logprobs = request.integer("top_logprobs", 0, k_max_top_logprobs).value_or(0);
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

Prepared responses(const HttpRequest& http, ServedModel& serving) {
    const Json body = parse_body(http.body);
    const Fields request(body);
    ReplyForm form = read_form(request, serving, "resp_");
    const SamplingFields fields = read_responses_sampling(request, serving);
    refuse_unsupported(request);
    const Turn turn = read_responses(request, serving);
    check_other_fields(request, "/v1/responses");
    const ChatPrompt prompt = make_prompt(turn, serving, ApiFamily::openai);

    form.has_logprobs = fields.has_logprobs;
    form.n_prompt = prompt.ids->size();
    Plan plan = plan_turn(ResponsesWriter(serving.model, form, echo_of(body)), form, fields, turn, prompt);
    plan.format.reasoning = MINIM_REASONING_SPLIT;
    return plan;
}

}  // namespace server
