// SPDX-License-Identifier: Apache-2.0
// Answers of /v1/responses: items one after another.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "json.h"
#include "reply_parts.h"

namespace server {

class ResponsesWriter {
  public:
    // `echo`: the request's fields that the response repeats.
    ResponsesWriter(const minim::Model& model, ReplyForm form, Json echo);

    std::string start();
    std::string news(const News& news);
    std::string end_choice(size_t choice, const ReplyText& answer);
    std::string end(std::span<const ReplyText> answers, const Usage& usage);
    std::string error(const std::string& message);
    // Some clients count events, not comments, and give up without any.
    std::string ping() {
        return ": ping\n\n" + event("response.in_progress", {{"response", response("in_progress")}});
    }

    std::string body(std::span<const ReplyText> answers, const Usage& usage);

  private:
    std::string event(const char* type, Json data);
    std::string open_item(Json item);
    std::string close_item(const char* status);
    std::string open_part(const char* type);
    std::string close_part();
    std::string text_delta(const char* event_type, const Delta& delta, const News& news);
    Json response(const char* status) const;
    Json finished(const ReplyText& answer, const Usage& usage) const;

    const minim::Model* model_;
    ReplyForm form_;
    Json echo_;
    Json items_ = Json::array();  // the last one may be open
    bool is_open_ = false;
    std::vector<Token> pending_;  // of an open message: their text is held back
    int64_t n_events_ = 0;
};

}  // namespace server
