// SPDX-License-Identifier: Apache-2.0
// Answers of /v1/completions.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "json.h"
#include "reply_parts.h"

namespace server {

class CompletionWriter {
  public:
    // `echoes`: the text before each choice, "" for none.
    CompletionWriter(const minim::Model& model, ReplyForm form, std::vector<std::string> echoes);

    std::string start();
    std::string news(const News& news);
    std::string end_choice(size_t choice, const ReplyText& answer);
    std::string end(std::span<const ReplyText> answers, const Usage& usage);
    std::string error(const std::string& message);
    static std::string ping() { return ": ping\n\n"; }

    std::string body(std::span<const ReplyText> answers, const Usage& usage) const;

  private:
    Json chunk(Json choices) const;
    // `finish_reason`: "" before the end.
    std::string event(size_t choice, std::string_view text, std::span<const Token> tokens,
                      std::string_view finish_reason);

    const minim::Model* model_;
    ReplyForm form_;
    std::string head_;  // of every chunk, up to its choices
    std::vector<std::string> echoes_;
    std::vector<size_t> offsets_;  // characters sent of each choice
};

}  // namespace server
