// SPDX-License-Identifier: Apache-2.0
// Answers of /v1/messages: blocks one after another.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "json.h"
#include "reply_parts.h"

namespace server {

class MessagesWriter {
  public:
    // If `shows_thinking` is set, reasoning becomes thinking blocks; else it is left out.
    MessagesWriter(ReplyForm form, bool shows_thinking);

    std::string start();
    std::string news(const News& news);
    std::string end_choice(size_t choice, const ReplyText& answer);
    std::string end(std::span<const ReplyText> answers, const Usage& usage);
    std::string error(const std::string& message);
    static std::string ping() { return "event: ping\ndata: {\"type\":\"ping\"}\n\n"; }

    std::string body(std::span<const ReplyText> answers, const Usage& usage);

  private:
    std::string open_block(const Json& block);
    std::string close_block();
    std::string delta(const char* type, const char* field, const std::string& text);

    ReplyForm form_;
    bool shows_thinking_;
    Json blocks_ = Json::array();  // the blocks of the whole answer; the last one may be open
    std::string arguments_;        // of an open tool_use block
    bool is_open_ = false;
};

}  // namespace server
