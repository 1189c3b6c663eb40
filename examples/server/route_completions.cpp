// SPDX-License-Identifier: Apache-2.0
// POST /v1/completions
#include <fmt/format.h>

#include "conversation.h"
#include "routes.h"

namespace server {

namespace {

using Ids = std::vector<int32_t>;

Ids tokens_of(const std::string& text, const Serving& serving) {
    const minim::Tokens tokens = serving.model.tokenize(text);
    return {tokens.begin(), tokens.end()};
}

Ids ids_of(const Json& list, const Fields& request, const Serving& serving) {
    Ids ids;
    ids.reserve(list.size());
    for (const Json& value : list) {
        if (!value.is_number_integer())
            request.refuse("prompt", fmt::format("has {} among token ids", kind_of(value)));
        const bool is_known = value >= 0 && value < serving.info.n_vocab;
        if (!is_known)
            request.refuse("prompt", fmt::format("has token id {}; the vocabulary has ids from 0 to {}",
                                                 value.dump(), serving.info.n_vocab - 1));
        ids.push_back(value.get<int32_t>());
    }
    return ids;
}

// Reads `prompt`: a text, a list of texts, a list of ids, or a list of lists of ids.
std::vector<Ids> read_prompts(const Fields& request, const Serving& serving) {
    constexpr size_t k_most_prompts = 256;
    const Json* prompt = request.find("prompt");
    if (prompt == nullptr) request.refuse("prompt", "is required");
    if (prompt->is_string()) return {tokens_of(*prompt, serving)};
    if (!prompt->is_array() || prompt->empty())
        request.refuse("prompt", "must be a string, a list of strings or a list of token ids, and not empty");
    const Json& first = prompt->front();
    if (!first.is_string() && !first.is_array()) return {ids_of(*prompt, request, serving)};
    if (prompt->size() > k_most_prompts)
        request.refuse(
            "prompt", fmt::format("has {} prompts; at most {} are possible", prompt->size(), k_most_prompts));
    std::vector<Ids> prompts;
    for (const Json& one : *prompt) {
        if (one.type() != first.type()) request.refuse("prompt", "mixes texts and token ids");
        prompts.push_back(one.is_string() ? tokens_of(one, serving) : ids_of(one, request, serving));
    }
    return prompts;
}

void refuse_unsupported(const Fields& request, const SamplingFields& fields) {
    if (const auto suffix = request.text("suffix"); suffix && !suffix->empty())
        request.refuse("suffix", "is not possible: the model was not trained to fill in text");
    const auto best_of = request.integer("best_of", 1, k_most_choices);
    if (best_of && *best_of != fields.n_choices) request.refuse("best_of", "must be the same as n");
}

}  // namespace

Prepared completions(const HttpRequest& http, Serving& serving) {
    const Json body = parse_body(http.body);
    const Fields request(body);
    AnswerForm form = read_form(request, serving, "cmpl-");
    SamplingFields fields = read_sampling(request, serving);
    fields.max_tokens = request.integer("max_tokens", 0, int64_t{1} << 40).value_or(16);
    const auto logprobs = request.integer("logprobs", 0, k_most_top_logprobs);
    fields.has_logprobs = logprobs.has_value();
    fields.n_top_logprobs = logprobs.value_or(0);
    refuse_unsupported(request, fields);
    const bool echoes = request.boolean("echo").value_or(false);
    if (echoes && fields.has_logprobs)
        request.refuse("echo", "with logprobs is not possible: only generated tokens have log-probabilities");

    std::vector<PlannedAnswer> answers;
    std::vector<std::string> echo_texts;
    for (Ids& ids : read_prompts(request, serving)) {
        if (ids.empty()) request.refuse("prompt", "is empty");
        check_length(ids.size(), serving, "prompt");
        form.n_prompt += ids.size();
        const std::string echo = echoes ? serving.model.detokenize(ids).str() : "";
        if (form.has_ids && form.prompt_ids.empty()) form.prompt_ids = ids;
        for (auto& answer : plan_choices(std::make_shared<const Ids>(std::move(ids)), fields, nullptr, 0)) {
            answers.push_back(std::move(answer));
            echo_texts.push_back(echo);
        }
    }
    form.has_logprobs = fields.has_logprobs;
    const bool is_stream = form.is_stream;
    const bool keeps_tokens = form.has_ids || form.has_logprobs;
    Plan plan(CompletionWriter(serving.model, std::move(form), std::move(echo_texts)));
    plan.answers = std::move(answers);
    plan.format.is_chat = false;
    plan.stops = fields.stops;
    plan.is_stream = is_stream;
    plan.keeps_tokens = keeps_tokens;
    plan.wants_no_token = fields.max_tokens == 0;
    plan.shows_end = fields.shows_end;
    return plan;
}

}  // namespace server
