// SPDX-License-Identifier: Apache-2.0
// Answers of llama.cpp's /completion and /infill.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "json.h"
#include "reply_parts.h"

namespace server {

struct LlamaForm {
    std::vector<std::shared_ptr<const std::vector<int32_t>>> prompts;  // of each choice
    std::string model;
    Json settings;                             // generation_settings, without the seed that was used
    std::vector<std::string> response_fields;  // paths of the fields that an answer has; empty: all
    bool returns_tokens = false;
    bool has_probabilities = false;
    bool has_timings = false;  // in every event of a stream
};

class LlamaWriter {
  public:
    LlamaWriter(const minim::Model& model, LlamaForm form);

    static std::string start() { return {}; }
    std::string news(const News& news);
    std::string end_choice(size_t choice, const ReplyText& answer);
    static std::string end(std::span<const ReplyText>, const Usage&) { return {}; }
    static std::string error(const std::string& message);
    static std::string ping() { return ": ping\n\n"; }

    std::string body(std::span<const ReplyText> answers, const Usage& usage) const;

  private:
    Json answer_json(size_t choice, const ReplyText& answer, bool is_stream) const;

    const minim::Model* model_;
    LlamaForm form_;
    std::vector<uint64_t> n_sent_;  // tokens of each choice
};

}  // namespace server
