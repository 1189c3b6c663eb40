// SPDX-License-Identifier: Apache-2.0
#include "openai/completion_writer.h"

#include <utility>

#include "error.h"
#include "openai/token_json.h"

namespace server {

namespace {

// Returns the entry of the token that ended an answer, as one token; none if there is no such token.
std::vector<Token> end_token(const ReplyText& answer) {
    if (answer.state.stop_token < 0) return {};
    Token token;
    token.id = answer.state.stop_token;
    token.logprob = answer.state.stop_logprob;
    return {token};
}

}  // namespace

CompletionWriter::CompletionWriter(const minim::Model& model, ReplyForm form, EchoForm echo)
    : model_(&model),
      form_(std::move(form)),
      echo_(std::move(echo)),
      offsets_(echo_.prompts.size()),
      is_echoed_(echo_.prompts.size()) {
    const std::string head = to_text(chunk(Json::array()));
    head_ = "data: " + head.substr(0, head.size() - 2);  // without "]}"
}

Json CompletionWriter::chunk(Json choices) const {
    return {{"id", form_.id},       {"object", "text_completion"},   {"created", form_.created},
            {"model", form_.model}, {"system_fingerprint", "minim"}, {"choices", std::move(choices)}};
}

std::string CompletionWriter::event(size_t choice, std::string_view text, std::span<const Token> tokens,
                                    std::span<const Token> ids, std::string_view finish_reason) {
    // The text of a prompt of ids may not be UTF-8: to_text() replaces bad bytes.
    std::string out = head_ + R"({"text":)" + to_text(Json(text));
    out.append(R"(,"index":)").append(std::to_string(choice)).append(R"(,"logprobs":)");
    const bool has_logprobs = form_.has_logprobs && !tokens.empty();
    out +=
        has_logprobs ? to_text(completion_logprobs(*model_, tokens, echo_.n_top, offsets_[choice])) : "null";
    out.append(R"(,"finish_reason":)").append(to_text(finish_reason.empty() ? Json() : Json(finish_reason)));
    if (form_.has_ids) out.append(R"(,"token_ids":)").append(to_text(ids_of(ids)));
    return out.append("}]}\n\n");
}

// Returns the tokens of a prompt with their texts. `scored`: those after the first, with log-probabilities.
std::vector<Token> CompletionWriter::prompt_of(size_t choice, std::span<const Token> scored) const {
    minim::Decoder decoder(*model_);
    std::vector<Token> tokens;
    for (const int32_t id : *echo_.prompts[choice]) {
        const size_t i = tokens.size();
        Token& token = tokens.emplace_back();
        if (i > 0 && i <= scored.size()) token = scored[i - 1];
        token.has_logprob = i > 0;
        token.id = id;
        token.text = decoder.push(id);
    }
    if (!tokens.empty()) tokens.back().text += decoder.finish();
    return tokens;
}

std::string CompletionWriter::echo_event(size_t choice, std::span<const Token> scored) {
    if (!echo_.is_on || is_echoed_[choice]) return {};
    is_echoed_[choice] = true;
    const std::vector<Token> tokens = prompt_of(choice, scored);
    std::string text;
    for (const Token& token : tokens) text += token.text;
    return event(choice, text, form_.has_logprobs ? tokens : std::vector<Token>(), {}, "");
}

std::string CompletionWriter::start() {
    std::string out;
    if (form_.has_logprobs) return out;  // the prompt comes once it has log-probabilities
    for (size_t i = 0; i < echo_.prompts.size(); ++i) out += echo_event(i, {});
    return out;
}

std::string CompletionWriter::news(const News& news) {
    std::string text;
    for (const Delta& delta : news.deltas) text += delta.text;
    if (text.empty() && news.tokens.empty()) return {};
    const std::string echo = echo_event(news.choice, news.prompt_tokens);  // before the offsets of the answer
    return echo + event(news.choice, text, news.tokens, news.tokens, "");
}

std::string CompletionWriter::end_choice(size_t choice, const ReplyText& answer) {
    const bool has_end = echo_.is_on && form_.has_logprobs;
    const std::string echo = echo_event(choice, answer.prompt_tokens);
    const std::vector<Token> last = has_end ? end_token(answer) : std::vector<Token>();
    return echo + event(choice, "", last, {}, answer.finish_reason);
}

std::string CompletionWriter::end(std::span<const ReplyText>, const Usage& usage) {
    std::string out;
    if (form_.has_usage) {
        Json last = chunk(Json::array());
        last["usage"] = usage_json(usage);
        out += "data: " + to_text(last) + "\n\n";
    }
    return out + "data: [DONE]\n\n";
}

std::string CompletionWriter::error(const std::string& message) {
    return "data: " + openai_error_body({503, message, "", ""}) + "\n\n";
}

std::string CompletionWriter::body(std::span<const ReplyText> answers, const Usage& usage) const {
    Json choices = Json::array();
    for (size_t i = 0; i < answers.size(); ++i) {
        const ReplyText& answer = answers[i];
        std::vector<Token> tokens;
        if (echo_.is_on) tokens = prompt_of(i, answer.prompt_tokens);
        std::string text;
        for (const Token& token : tokens) text += token.text;
        Json choice = {{"text", text + answer.content},
                       {"index", i},
                       {"logprobs", nullptr},
                       {"finish_reason", answer.finish_reason}};
        if (form_.has_logprobs) {
            tokens.insert(tokens.end(), answer.tokens.begin(), answer.tokens.end());
            const std::vector<Token> end = echo_.is_on ? end_token(answer) : std::vector<Token>();
            tokens.insert(tokens.end(), end.begin(), end.end());
            size_t offset = 0;
            choice["logprobs"] = completion_logprobs(*model_, tokens, echo_.n_top, offset);
        }
        if (echo_.n_prompt_logprobs)
            choice["prompt_logprobs"] =
                prompt_logprobs(*model_, answer.prompt_tokens, *echo_.n_prompt_logprobs);
        if (form_.has_ids) choice["token_ids"] = ids_of(answer.tokens);
        choices.push_back(std::move(choice));
    }
    Json body = chunk(std::move(choices));
    body["usage"] = usage_json(usage);
    body["timings"] = timings_json(usage);
    return to_text(body);
}

}  // namespace server
