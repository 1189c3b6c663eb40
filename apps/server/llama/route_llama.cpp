// SPDX-License-Identifier: Apache-2.0
// POST /completion and /infill, as llama.cpp has them.
#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "llama/settings.h"
#include "peer_fields.h"
#include "prompt_fields.h"
#include "routes.h"

namespace server {

namespace {

using Prompt = std::vector<int32_t>;

struct LlamaRequest {
    ReplyForm form;
    SamplingFields fields;
    LlamaForm llama;
    TextRule rule;
};

// Reads all fields but the prompt's.
LlamaRequest read_request(const Fields& request, const ServedModel& serving) {
    LlamaRequest read;
    read.form = read_form(request, serving, "");
    read.fields = read_sampling(request, serving, "stop");
    SamplingFields& fields = read.fields;
    fields.max_tokens = read_max_tokens(request, {"n_predict", "max_completion_tokens", "max_tokens"});
    read_samplers(request, fields);
    fields.n_choices = request.integer("n_cmpl", 1, k_max_choices).value_or(fields.n_choices);
    auto n_probs = request.integer("n_probs", 0, k_max_top_logprobs);
    if (!n_probs) n_probs = request.integer("logprobs", 0, k_max_top_logprobs);
    fields.n_top_logprobs = n_probs.value_or(0);
    fields.has_logprobs = fields.n_top_logprobs > 0;
    read.rule = read_text_rule(request);

    LlamaForm& llama = read.llama;
    llama.model = serving.name;
    llama.returns_tokens = request.boolean("return_tokens").value_or(false);
    llama.has_probabilities = fields.has_logprobs;
    llama.has_timings = request.boolean("timings_per_token").value_or(false);
    if (const Json* paths = request.array("response_fields")) {
        for (const Json& path : *paths) {
            if (!path.is_string()) request.refuse("response_fields", "must have strings only");
            llama.response_fields.push_back(path);
        }
    }
    read.form.has_logprobs = fields.has_logprobs;
    read.form.has_ids = read.form.is_stream || llama.returns_tokens;
    return read;
}

// Returns the settings that an answer reports.
Json whole_settings(const SamplingFields& fields, const TextRule& rule) {
    Json settings = settings_json(fields);
    settings["stop"] = fields.stops;
    Json& biases = settings["logit_bias"] = Json::array();
    for (const auto& [id, bias] : fields.logit_bias) biases.push_back({{"bias", bias}, {"token", id}});
    settings["grammar"] = rule.kind == TextRule::Kind::grammar ? rule.text : "";
    return settings;
}

Plan plan_of(LlamaRequest read, std::vector<Prompt> prompts, ServedModel& serving) {
    const auto constraint = constraint_of(read.rule, Preamble::none, serving);
    read.llama.settings = whole_settings(read.fields, read.rule);
    std::vector<std::shared_ptr<const Prompt>> whole;
    for (Prompt& ids : prompts) {
        read.form.n_prompt += ids.size();
        whole.push_back(std::make_shared<const Prompt>(std::move(ids)));
        read.llama.prompts.insert(read.llama.prompts.end(), read.fields.n_choices, whole.back());
    }
    Plan plan(LlamaWriter(serving.model, std::move(read.llama)), read.form, read.fields);
    plan.format.is_chat = false;
    for (const auto& ids : whole) add_choices(ids, read.fields, constraint.get(), 0, plan);
    return plan;
}

// Reads `prompt`: a text, a list of ids, a list of ids and texts, or a list of such prompts.
std::vector<Prompt> read_prompts_of_llama(const Fields& request, const ServedModel& serving) {
    constexpr size_t k_max_prompts = 256;
    const Json* prompt = request.find("prompt");
    if (prompt == nullptr) request.refuse("prompt", "is required");
    const bool is_list = prompt->is_array() && !prompt->empty();
    const bool has_ids = is_list && std::ranges::any_of(*prompt, &Json::is_number);
    std::vector<Prompt> prompts;
    if (!is_list || has_ids) {
        prompts.push_back(tokens_of_mixed(*prompt, request, "prompt", serving));
    } else {
        if (prompt->size() > k_max_prompts)
            request.refuse("prompt", fmt::format("has {} prompts; at most {} are possible", prompt->size(),
                                                 k_max_prompts));
        for (const Json& one : *prompt) prompts.push_back(tokens_of_mixed(one, request, "prompt", serving));
    }
    for (const Prompt& ids : prompts) check_prompt(ids, request, "prompt", serving);
    return prompts;
}

// The tokens for filling in text. A member is -1 if the vocabulary does not have the token.
struct FillTokens {
    int32_t prefix;
    int32_t suffix;
    int32_t middle;
    int32_t pad;
    int32_t repository;
    int32_t file;
};

FillTokens fill_tokens(const ServedModel& serving) {
    const auto id_of = [&](const char* text) {
        const minim::Tokens ids = serving.model.tokenize(text);
        const bool is_token =
            ids.size() == 1 && (serving.model.token_attributes(ids[0]) & MINIM_TOKEN_CONTROL) != 0;
        return is_token ? ids[0] : -1;
    };
    const FillTokens tokens = {id_of("<fim_prefix>"), id_of("<fim_suffix>"), id_of("<fim_middle>"),
                               id_of("<fim_pad>"),    id_of("<reponame>"),   id_of("<file_sep>")};
    if (tokens.prefix < 0 || tokens.suffix < 0 || tokens.middle < 0)
        throw ApiError{501,
                       "the model cannot fill in text: its vocabulary lacks one of the tokens <fim_prefix>, "
                       "<fim_suffix> and <fim_middle>",
                       "", "not_supported"};
    return tokens;
}

// Returns the tokens of `input_extra`: files of the repository, each with its name.
Prompt extra_tokens(const Fields& request, const FillTokens& tokens, const ServedModel& serving) {
    const Json* files = request.array("input_extra");
    Prompt ids;
    if (files == nullptr) return ids;
    for (size_t i = 0; i < files->size(); ++i) {
        const Fields file((*files)[i], fmt::format("input_extra[{}]", i));
        const std::string name = file.text("filename").value_or("tmp");
        const std::string text = file.required_text("text");
        if (tokens.file >= 0) ids.push_back(tokens.file);
        const std::string head = tokens.file >= 0 ? name + "\n" : "\n\n--- " + name + " ---\n\n";
        const minim::Tokens some = serving.model.tokenize(head + text, MINIM_SPECIALS_NONE);
        ids.insert(ids.end(), some.begin(), some.end());
    }
    if (!ids.empty() && tokens.file >= 0) ids.push_back(tokens.file);
    return ids;
}

}  // namespace

Prepared llama_completion(const HttpRequest& http, ServedModel& serving) {
    const Json body = parse_body(http.body);
    const Fields request(body);
    LlamaRequest read = read_request(request, serving);
    std::vector<Prompt> prompts = read_prompts_of_llama(request, serving);
    check_other_fields(request, "/completion");
    return plan_of(std::move(read), std::move(prompts), serving);
}

// The order of the tokens is that of the models from which these tokens come: prefix, suffix, and what is between them is
// generated. Texts are never markup.
Prepared llama_infill(const HttpRequest& http, ServedModel& serving) {
    const Json body = parse_body(http.body);
    const Fields request(body);
    const FillTokens tokens = fill_tokens(serving);
    LlamaRequest read = read_request(request, serving);
    const auto read_text = [&](const char* name) {
        const Json* value = request.find(name);
        if (value == nullptr) request.refuse(name, "is required");
        return tokens_of_mixed(*value, request, name, serving, MINIM_SPECIALS_NONE);
    };
    Prompt prefix = read_text("input_prefix");
    const Prompt suffix = read_text("input_suffix");
    if (request.has("prompt")) {  // the beginning of what is filled in
        const Prompt begun = read_text("prompt");
        prefix.insert(prefix.end(), begun.begin(), begun.end());
    }
    const Prompt extra = extra_tokens(request, tokens, serving);
    check_other_fields(request, "/infill");

    // Files that do not fit are left out, the first ones first.
    constexpr int64_t k_markers = 3;
    const int64_t n_own = std::ssize(prefix) + std::ssize(suffix) + k_markers;
    check_length(n_own, serving, "input_prefix", ApiFamily::openai);
    const int64_t n_answer = std::max<int64_t>(read.fields.max_tokens.value_or(1), 1);
    const int64_t n_extra = std::clamp<int64_t>(serving.n_context - n_own - n_answer, 0, std::ssize(extra));
    Prompt ids(extra.end() - n_extra, extra.end());
    ids.push_back(tokens.prefix);
    ids.insert(ids.end(), prefix.begin(), prefix.end());
    ids.push_back(tokens.suffix);
    ids.insert(ids.end(), suffix.begin(), suffix.end());
    ids.push_back(tokens.middle);
    for (const int32_t end : {tokens.pad, tokens.repository, tokens.file})
        if (end >= 0) read.fields.stop_ids.push_back(end);
    std::vector<Prompt> prompts;
    prompts.push_back(std::move(ids));
    return plan_of(std::move(read), std::move(prompts), serving);
}

}  // namespace server
