// SPDX-License-Identifier: Apache-2.0
#include "llama/llama_writer.h"

#include <algorithm>
#include <utility>

#include "error.h"
#include "openai/token_json.h"

namespace server {

namespace {

const char* stop_type(const ReplyText& answer) {
    switch (answer.state.finish) {
        case MINIM_FINISH_END:
            return "eos";
        case MINIM_FINISH_STOP_TEXT:
            return "word";
        case MINIM_FINISH_LENGTH:
        case MINIM_FINISH_CONTEXT_FULL:
        case MINIM_FINISH_TIMEOUT:
        case MINIM_FINISH_LOOP:
            return "limit";
        default:
            return "none";
    }
}

Json probabilities(const minim::Model& model, std::span<const Token> tokens) {
    Json entries = Json::array();
    for (const Token& token : tokens) {
        Json entry = token_json(model, token.id, token.logprob);
        entry["id"] = token.id;
        Json& top = entry["top_logprobs"] = Json::array();
        for (const minim_token_probability& other : token.top) {
            top.push_back(token_json(model, other.id, other.logprob));
            top.back()["id"] = other.id;
        }
        entries.push_back(std::move(entry));
    }
    return entries;
}

// Returns the fields with these paths ("timings/predicted_n") under their paths, without those that do not exist.
Json selected(const Json& whole, std::span<const std::string> paths) {
    if (paths.empty()) return whole;
    Json some = Json::object();
    for (const std::string& path : paths) {
        const Json* place = &whole;
        for (size_t at = 0; place != nullptr && at <= path.size();) {
            const size_t end = std::min(path.find('/', at), path.size());
            const auto found = place->is_object() ? place->find(path.substr(at, end - at)) : place->end();
            place = place->is_object() && found != place->end() ? &*found : nullptr;
            at = end + 1;
        }
        if (place != nullptr) some[path] = *place;
    }
    return some;
}

Usage usage_of_state(const minim_request_state& state) {
    Usage usage;
    usage.n_prompt = state.n_prompt;
    usage.n_cached = state.n_cached;
    usage.add_answer(state);
    return usage;
}

}  // namespace

LlamaWriter::LlamaWriter(const minim::Model& model, LlamaForm form)
    : model_(&model), form_(std::move(form)), n_sent_(form_.prompts.size()) {}

std::string LlamaWriter::news(const News& news) {
    std::string text;
    for (const Delta& delta : news.deltas) text += delta.text;
    n_sent_[news.choice] += news.tokens.size();
    Json chunk = {{"index", news.choice},
                  {"content", text},
                  {"tokens", ids_of(news.tokens)},
                  {"stop", false},
                  {"id_slot", news.slot},
                  {"tokens_predicted", n_sent_[news.choice]},
                  {"tokens_evaluated", form_.prompts[news.choice]->size()}};
    if (form_.has_timings && news.job != nullptr)
        chunk["timings"] = timings_json(usage_of_state(news.job->state()));
    if (form_.has_probabilities && !news.tokens.empty())
        chunk["completion_probabilities"] = probabilities(*model_, news.tokens);
    return "data: " + to_text(chunk) + "\n\n";
}

Json LlamaWriter::answer_json(size_t choice, const ReplyText& answer, bool is_stream) const {
    const minim_request_state& state = answer.state;
    Json settings = form_.settings;
    settings["seed"] = state.seed;
    settings["stream"] = is_stream;
    const bool has_ids = form_.returns_tokens && !is_stream;
    Json whole = {{"index", choice},
                  {"content", is_stream ? "" : answer.content},
                  {"tokens", has_ids ? ids_of(answer.tokens) : Json::array()},
                  {"id_slot", answer.slot},
                  {"stop", true},
                  {"model", form_.model},
                  {"tokens_predicted", state.n_generated},
                  {"tokens_evaluated", state.n_prompt},
                  {"generation_settings", std::move(settings)},
                  {"prompt", model_->detokenize(*form_.prompts[choice]).str()},
                  {"has_new_line", answer.content.find('\n') != std::string::npos},
                  {"truncated", state.finish == MINIM_FINISH_CONTEXT_FULL},
                  {"stop_type", stop_type(answer)},
                  {"stopping_word", answer.stop_text},
                  {"tokens_cached", state.n_prompt + state.n_generated},
                  {"timings", timings_json(usage_of_state(state))}};
    if (form_.has_probabilities && !is_stream)
        whole["completion_probabilities"] = probabilities(*model_, answer.tokens);
    return selected(whole, form_.response_fields);
}

std::string LlamaWriter::end_choice(size_t choice, const ReplyText& answer) {
    return "data: " + to_text(answer_json(choice, answer, /*is_stream=*/true)) + "\n\n";
}

std::string LlamaWriter::error(const std::string& message) {
    return "data: " + openai_error_body({503, message, "", ""}) + "\n\n";
}

std::string LlamaWriter::body(std::span<const ReplyText> answers, const Usage&) const {
    Json all = Json::array();
    for (size_t i = 0; i < answers.size(); ++i)
        all.push_back(answer_json(i, answers[i], /*is_stream=*/false));
    return to_text(all.size() == 1 ? all.front() : all);
}

}  // namespace server
