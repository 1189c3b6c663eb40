// SPDX-License-Identifier: Apache-2.0
#include "openai/completion_writer.h"

#include <utility>

#include "error.h"
#include "openai/token_json.h"

namespace server {

CompletionWriter::CompletionWriter(const minim::Model& model, ReplyForm form, std::vector<std::string> echoes)
    : model_(&model), form_(std::move(form)), echoes_(std::move(echoes)) {
    for (const std::string& echo : echoes_) offsets_.push_back(characters(echo));
    const std::string head = to_text(chunk(Json::array()));
    head_ = "data: " + head.substr(0, head.size() - 2);  // without "]}"
}

Json CompletionWriter::chunk(Json choices) const {
    return {{"id", form_.id},       {"object", "text_completion"},   {"created", form_.created},
            {"model", form_.model}, {"system_fingerprint", "minim"}, {"choices", std::move(choices)}};
}

std::string CompletionWriter::event(size_t choice, std::string_view text, std::span<const Token> tokens,
                                    std::string_view finish_reason) {
    // The text of a prompt of ids may not be UTF-8: to_text() replaces bad bytes.
    std::string out = head_ + R"({"text":)" + to_text(Json(text));
    out.append(R"(,"index":)").append(std::to_string(choice)).append(R"(,"logprobs":)");
    const bool has_logprobs = form_.has_logprobs && !tokens.empty();
    out += has_logprobs ? to_text(completion_logprobs(*model_, tokens, offsets_[choice])) : "null";
    out.append(R"(,"finish_reason":)").append(to_text(finish_reason.empty() ? Json() : Json(finish_reason)));
    if (form_.has_ids) out.append(R"(,"token_ids":)").append(to_text(ids_of(tokens)));
    return out.append("}]}\n\n");
}

std::string CompletionWriter::start() {
    std::string out;
    for (size_t i = 0; i < echoes_.size(); ++i) {
        if (!echoes_[i].empty()) out += event(i, echoes_[i], {}, "");
    }
    return out;
}

std::string CompletionWriter::news(const News& news) {
    std::string text;
    for (const Delta& delta : news.deltas) text += delta.text;
    if (text.empty() && news.tokens.empty()) return {};
    return event(news.choice, text, news.tokens, "");
}

std::string CompletionWriter::end_choice(size_t choice, const ReplyText& answer) {
    return event(choice, "", {}, answer.finish_reason);
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
        Json choice = {{"text", echoes_[i] + answer.content},
                       {"index", i},
                       {"logprobs", nullptr},
                       {"finish_reason", answer.finish_reason}};
        size_t offset = characters(echoes_[i]);
        if (form_.has_logprobs) choice["logprobs"] = completion_logprobs(*model_, answer.tokens, offset);
        if (form_.has_ids) choice["token_ids"] = ids_of(answer.tokens);
        choices.push_back(std::move(choice));
    }
    Json body = chunk(std::move(choices));
    body["usage"] = usage_json(usage);
    body["timings"] = timings_json(usage);
    return to_text(body);
}

}  // namespace server
