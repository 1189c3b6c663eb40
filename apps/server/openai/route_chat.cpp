// SPDX-License-Identifier: Apache-2.0
// POST /v1/chat/completions
#include "peer_fields.h"
#include "routes.h"

namespace server {

Prepared chat_completions(const HttpRequest& http, ServedModel& serving) {
    const Json body = parse_body(http.body);
    const Fields request(body);
    ReplyForm form = read_form(request, serving, "chatcmpl-");
    SamplingFields fields = read_sampling(request, serving, "stop");
    fields.max_tokens =
        read_max_tokens(request, {"max_completion_tokens", "max_tokens", "n_predict", "max_new_tokens"});
    fields.has_logprobs = request.boolean("logprobs").value_or(false);
    fields.n_top_logprobs = request.integer("top_logprobs", 0, k_max_top_logprobs).value_or(0);
    if (fields.n_top_logprobs > 0 && !fields.has_logprobs)
        request.refuse("top_logprobs", "needs logprobs: true");
    const Turn turn = read_chat(request, serving);
    check_other_fields(request, "/v1/chat/completions");
    const ChatPrompt prompt = make_prompt(turn, serving, ApiFamily::openai);

    form.has_logprobs = fields.has_logprobs;
    form.reasoning_fields = serving.options.reasoning_fields;
    form.has_details = turn.has_reasoning_details;
    form.has_function_call = turn.answers_with_function_call;
    form.n_prompt = prompt.ids->size();
    if (form.has_ids) form.prompt_ids = *prompt.ids;
    return plan_turn(ChatWriter(serving.model, form, fields.n_choices), form, fields, turn, prompt);
}

}  // namespace server
