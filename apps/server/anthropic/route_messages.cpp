// SPDX-License-Identifier: Apache-2.0
// POST /v1/messages and /v1/messages/count_tokens
#include "peer_fields.h"
#include "routes.h"
#include "thinking_fields.h"

namespace server {

namespace {

SamplingFields read_anthropic_sampling(const Fields& request, const ServedModel& serving) {
    request.number("temperature", 0, 2);
    SamplingFields fields = read_sampling(request, serving, "stop_sequences");
    if (fields.n_choices != 1) request.refuse("n", "must be 1");
    fields.max_tokens = read_max_tokens(request, {"max_tokens"});
    if (!fields.max_tokens) request.refuse("max_tokens", "is required");
    return fields;
}

}  // namespace

Prepared messages(const HttpRequest& http, ServedModel& serving) {
    const Json body = parse_body(http.body);
    const Fields request(body);
    ReplyForm form = read_form(request, serving, "msg_");
    const SamplingFields fields = read_anthropic_sampling(request, serving);
    const Turn turn = read_anthropic(request, serving);
    const bool shows_thinking = asks_for_thinking(request) && turn.shows_reasoning;
    check_other_fields(request, "/v1/messages");
    const ChatPrompt prompt = make_prompt(turn, serving, ApiFamily::anthropic);

    form.n_prompt = prompt.ids->size();
    Plan plan = plan_turn(MessagesWriter(form, shows_thinking), form, fields, turn, prompt);
    plan.family = ApiFamily::anthropic;
    plan.format.reasoning = MINIM_REASONING_SPLIT;
    plan.shows_reasoning = true;  // the writer leaves thoughts out
    return plan;
}

// Counts what a request has, also beyond the context: clients ask in order to know whether it fits.
Prepared count_tokens(const HttpRequest& http, ServedModel& serving) {
    const Json body = parse_body(http.body);
    const Fields request(body);
    check_model_name(request, serving);
    const Turn turn = read_anthropic(request, serving);
    HttpResponse response;
    response.body = to_text({{"input_tokens", prompt_ids(turn, serving).size()}});
    return response;
}

}  // namespace server
