// SPDX-License-Identifier: Apache-2.0
// Answers of /v1/completions.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "json.h"
#include "reply_parts.h"

namespace server {

// What the answers tell of their prompts.
struct EchoForm {
    std::vector<std::shared_ptr<const std::vector<int32_t>>> prompts;  // of each choice
    bool is_on = false;  // the prompt comes before the answer, in `logprobs` too
    int64_t n_top = 0;   // likeliest tokens in `logprobs`
    // Likeliest tokens in `prompt_logprobs`; none: the field is not asked for.
    std::optional<int64_t> n_prompt_logprobs;
};

class CompletionWriter {
  public:
    CompletionWriter(const minim::Model& model, ReplyForm form, EchoForm echo);

    std::string start();
    std::string news(const News& news);
    std::string end_choice(size_t choice, const ReplyText& answer);
    std::string end(std::span<const ReplyText> answers, const Usage& usage);
    std::string error(const std::string& message);
    static std::string ping() { return ": ping\n\n"; }

    std::string body(std::span<const ReplyText> answers, const Usage& usage) const;

  private:
    Json chunk(Json choices) const;
    // `tokens` are for log-probabilities, `ids` for token_ids. `finish_reason`: "" before the end.
    std::string event(size_t choice, std::string_view text, std::span<const Token> tokens,
                      std::span<const Token> ids, std::string_view finish_reason);
    std::string echo_event(size_t choice, std::span<const Token> scored);
    std::vector<Token> prompt_of(size_t choice, std::span<const Token> scored) const;

    const minim::Model* model_;
    ReplyForm form_;
    std::string head_;  // of every chunk, up to its choices
    EchoForm echo_;
    std::vector<size_t> offsets_;  // characters sent of each choice
    std::vector<bool> is_echoed_;  // the prompt of a choice has been sent
};

}  // namespace server
