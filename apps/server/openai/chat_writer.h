// SPDX-License-Identifier: Apache-2.0
// Answers of /v1/chat/completions.
#pragma once

#include <span>
#include <string>

#include "json.h"
#include "reply_parts.h"

namespace server {

class ChatWriter {
  public:
    ChatWriter(const minim::Model& model, ReplyForm form, size_t n_choices);

    // Each returns events for the stream, "" for none.
    std::string start();
    std::string news(const News& news);
    std::string end_choice(size_t choice, const ReplyText& answer);
    std::string end(std::span<const ReplyText> answers, const Usage& usage);
    std::string error(const std::string& message);
    static std::string ping() { return ": ping\n\n"; }

    std::string body(std::span<const ReplyText> answers, const Usage& usage) const;

  private:
    std::string chunk(size_t choice, const std::string& delta, const Json* logprobs, const Json* ids) const;

    const minim::Model* model_;
    ReplyForm form_;
    std::string head_;  // of every chunk
    size_t n_choices_;
};

}  // namespace server
