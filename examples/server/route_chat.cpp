// SPDX-License-Identifier: Apache-2.0
// POST /v1/chat/completions
#include "conversation.h"
#include "routes.h"

namespace server {

Prepared chat_completions(const HttpRequest& http, Serving& serving) {
    const Json body = parse_body(http.body);
    const Fields request(body);
    AnswerForm form = read_form(request, serving, "chatcmpl-");
    SamplingFields fields = read_sampling(request, serving);
    const auto max_tokens = request.integer("max_tokens", 0, int64_t{1} << 40);
    fields.max_tokens = request.integer("max_completion_tokens", 0, int64_t{1} << 40);
    if (!fields.max_tokens) fields.max_tokens = max_tokens;
    fields.has_logprobs = request.boolean("logprobs").value_or(false);
    const auto top_logprobs = request.integer("top_logprobs", 0, k_most_top_logprobs);
    if (top_logprobs.value_or(0) > 0 && !fields.has_logprobs)
        request.refuse("top_logprobs", "needs logprobs: true");
    fields.n_top_logprobs = top_logprobs.value_or(0);
    const bool includes_reasoning = request.boolean("include_reasoning").value_or(true);
    const Conversation conversation = read_conversation(request, serving);
    const ChatPrompt prompt = make_prompt(conversation, serving);

    form.has_logprobs = fields.has_logprobs;
    form.n_prompt = prompt.ids->size();
    if (form.has_ids) form.prompt_ids = *prompt.ids;
    const bool is_stream = form.is_stream;
    const bool keeps_tokens = form.has_ids || form.has_logprobs;
    Plan plan(ChatWriter(serving.model, std::move(form), static_cast<size_t>(fields.n_choices)));
    plan.answers = plan_choices(prompt.ids, fields, prompt.constraint.get(), prompt.reasoning_budget);
    plan.format = prompt.format;
    plan.stops = fields.stops;
    plan.is_stream = is_stream;
    plan.keeps_tokens = keeps_tokens;
    plan.wants_no_token = fields.max_tokens == 0;
    plan.shows_end = fields.shows_end;
    plan.shows_reasoning = includes_reasoning;
    plan.has_one_call = !conversation.parallel_calls;
    plan.is_remembered = !conversation.continues;
    return plan;
}

}  // namespace server
