// SPDX-License-Identifier: Apache-2.0
// POST /v1/completions
#include <algorithm>
#include <memory>
#include <optional>

#include <fmt/format.h>

#include "peer_fields.h"
#include "prompt_fields.h"
#include "routes.h"

namespace server {

namespace {

using Ids = std::vector<int32_t>;

// Returns the tokens of a prompt. One that cannot fit is refused before the work, unless it is cut.
Ids tokens_of(const std::string& text, const Fields& request, const ServedModel& serving) {
    if (!request.has("truncate_prompt_tokens")) return tokens_of_text(text, "prompt", serving);
    const minim::Tokens tokens = serving.model.tokenize(text);
    return {tokens.begin(), tokens.end()};
}

Ids ids_of(const Json& list, const Fields& request, const ServedModel& serving) {
    return read_ids(list, request, "prompt", "has {} among token ids", serving);
}

// Reads `prompt`: a text, a list of texts, a list of ids, or a list of lists of ids.
std::vector<Ids> read_prompts(const Fields& request, const ServedModel& serving) {
    constexpr size_t k_max_prompts = 256;
    const Json* prompt = request.find("prompt");
    if (prompt == nullptr) request.refuse("prompt", "is required");
    if (prompt->is_string()) return {tokens_of(*prompt, request, serving)};
    if (!prompt->is_array() || prompt->empty())
        request.refuse("prompt", "must be a string, a list of strings or a list of token ids, and not empty");
    const Json& first = prompt->front();
    if (!first.is_string() && !first.is_array()) return {ids_of(*prompt, request, serving)};
    if (prompt->size() > k_max_prompts)
        request.refuse("prompt",
                       fmt::format("has {} prompts; at most {} are possible", prompt->size(), k_max_prompts));
    std::vector<Ids> prompts;
    for (const Json& one : *prompt) {
        if (one.type() != first.type()) request.refuse("prompt", "mixes texts and token ids");
        prompts.push_back(one.is_string() ? tokens_of(one, request, serving) : ids_of(one, request, serving));
    }
    return prompts;
}

// Leaves the last tokens of the prompts, as `truncate_prompt_tokens` says; -1: as many as the context takes.
void truncate(const Fields& request, const ServedModel& serving, std::vector<Ids>& prompts) {
    const auto given = request.integer("truncate_prompt_tokens", -1, int64_t{1} << 40);
    if (!given) return;
    if (*given == 0) request.refuse("truncate_prompt_tokens", "must be at least 1, or -1");
    const int64_t most = *given < 0 ? serving.n_context - 1 : *given;
    for (Ids& ids : prompts)
        if (static_cast<int64_t>(ids.size()) > most) ids.erase(ids.begin(), ids.end() - most);
}

// Reads `prompt_logprobs`: how many of the likeliest tokens are reported beside each token of the prompt; none: not asked for. As in
// vLLM it is only for whole answers.
std::optional<int64_t> read_prompt_logprobs(const Fields& request, const ReplyForm& form) {
    const Json* value = request.find("prompt_logprobs");
    if (value == nullptr || *value == false) return std::nullopt;
    const auto n_top = request.integer("prompt_logprobs", 0, k_max_top_logprobs);
    if (form.is_stream)
        request.refuse("prompt_logprobs", "is not possible in a stream: use echo with logprobs");
    return n_top;
}

}  // namespace

Prepared completions(const HttpRequest& http, ServedModel& serving) {
    const Json body = parse_body(http.body);
    const Fields request(body);
    ReplyForm form = read_form(request, serving, "cmpl-");
    SamplingFields fields = read_sampling(request, serving, "stop");
    constexpr int64_t k_usual_tokens = 16;
    const auto limits = {"max_tokens", "n_predict", "max_new_tokens"};
    fields.max_tokens = read_max_tokens(request, limits);
    const bool has_limit = std::ranges::any_of(limits, [&](const char* name) { return request.has(name); });
    if (!has_limit) fields.max_tokens = k_usual_tokens;
    const auto logprobs = request.integer("logprobs", 0, k_max_top_logprobs);
    fields.has_logprobs = logprobs.has_value();
    fields.n_top_logprobs = logprobs.value_or(0);
    EchoForm echo;
    echo.is_on = request.boolean("echo").value_or(false);
    echo.n_top = fields.n_top_logprobs;
    echo.n_prompt_logprobs = read_prompt_logprobs(request, form);
    if (echo.is_on && fields.has_logprobs) fields.n_prompt_logprobs = fields.n_top_logprobs;
    fields.n_prompt_logprobs = std::max(fields.n_prompt_logprobs, echo.n_prompt_logprobs.value_or(-1));
    const TextRule rule = read_text_rule(request);

    std::vector<Ids> prompts = read_prompts(request, serving);
    truncate(request, serving, prompts);
    check_other_fields(request, "/v1/completions");
    const auto constraint = constraint_of(rule, Preamble::none, serving);
    std::vector<std::shared_ptr<const Ids>> whole;
    for (Ids& ids : prompts) {
        check_prompt(ids, request, "prompt", serving);
        form.n_prompt += ids.size();
        whole.push_back(std::make_shared<const Ids>(std::move(ids)));
        echo.prompts.insert(echo.prompts.end(), fields.n_choices, whole.back());
    }
    if (form.has_ids) form.prompt_ids = *whole.front();
    form.has_logprobs = fields.has_logprobs;
    Plan plan(CompletionWriter(serving.model, form, std::move(echo)), form, fields);
    plan.format.is_chat = false;
    for (const auto& ids : whole) add_choices(ids, fields, constraint.get(), 0, plan);
    return plan;
}

}  // namespace server
