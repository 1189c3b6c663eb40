// SPDX-License-Identifier: Apache-2.0
// Answers one request: submits its plan to the job queue and converts tokens to the client's format. Runs on the loop's thread.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "http/http_server.h"
#include "job_queue.h"
#include "metrics.h"
#include "plan.h"
#include "request_log.h"
#include "workers.h"

namespace server {

class Reply : public std::enable_shared_from_this<Reply> {
  public:
    using Clock = std::chrono::steady_clock;
    struct Tools {
        std::shared_ptr<ServedModel> serving;  // stays open until the answer is complete
        Workers& workers;
    };

    Reply(Tools tools, std::shared_ptr<Exchange> exchange, Plan plan, Clock::time_point arrived);

    // Answers 429 if the queue is full. `on_done` is called once, when the exchange has its answer or its client has gone.
    void start(std::function<void()> on_done);
    // Sends a keep-alive if the stream has been silent for `interval`.
    void ping(Clock::time_point now, Clock::duration interval);
    // Ends the request with an error, if it has no answer yet.
    void end(const std::string& error);
    // Returns what the log says of the answer.
    AnswerFigures figures() const;

  private:
    struct Choice {
        std::shared_ptr<Job> job;
        std::optional<OutputReader> reader;
        ReplyText answer;
        std::vector<int32_t> ids;
        bool is_reasoning = false;   // so far
        std::vector<Token> pending;  // tokens that wait for text: they may belong to a stop text
        bool has_ended = false;
        bool is_whole = true;  // the client gets the complete generated text
    };

    void on_tokens(size_t index, std::span<const Token> tokens);
    void take_tokens(size_t index, std::span<const Token> tokens);
    void on_end(size_t index, const JobEnd& end);
    std::string stop_shown(const minim_request_state& state) const;
    static void take_prompt(Choice& choice);
    void take_deltas(Choice& choice, std::vector<Delta>& deltas) const;
    void keep_tokens(Choice& choice, std::span<const Token> tokens, News& news) const;
    void emit(News& news, size_t index);
    void finish();
    void fail(const std::string& message, int status = 503);
    void cancel();
    void remember(const Choice& choice);
    void done();

    Tools tools_;
    std::shared_ptr<Exchange> exchange_;
    Plan plan_;
    std::function<void()> on_done_;
    std::vector<Choice> choices_;
    size_t n_left_ = 0;
    Usage usage_;
    Clock::time_point arrived_;
    Clock::time_point last_sent_;
    Clock::time_point last_token_{};
    double queue_seconds_ = 0;
    double first_token_seconds_ = 0;
};

}  // namespace server
