// SPDX-License-Identifier: Apache-2.0
// The server: finds the route of a request, checks its key, keeps the log, and ends in order.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>

#include "http/auth.h"
#include "http/event_loop.h"
#include "http/host_check.h"
#include "http/http_server.h"
#include "models.h"
#include "reply.h"
#include "request_log.h"

namespace server {

// Listens where the options say. Requests are answered once a handler is set.
std::unique_ptr<HttpServer> listen(EventLoop& loop, const Options& options);

class Service {
  public:
    Service(EventLoop& loop, HttpServer& http, const Keys& keys, Models& models);

    // Returns the error that has ended the server: a rank of the model is lost; empty: none.
    const std::string& failure() const { return failure_; }
    // Returns whether a step may still be waiting for other processes, which do not answer.
    bool is_cut_off() const { return is_cut_off_; }

  private:
    using Clock = std::chrono::steady_clock;

    void handle(const std::shared_ptr<Exchange>& exchange);
    // A request under way.
    struct Pending {
        std::shared_ptr<Exchange> exchange;
        size_t route = 0;
        Clock::time_point arrived;
        std::shared_ptr<Metrics> metrics;  // of its model, once that is known
    };

    bool answer_briefly(const Pending& pending);
    void choose_model(Pending pending);
    void use_model(Pending pending, ModelEntry& entry, const Wanted& wanted);
    void prepare(Pending pending, std::shared_ptr<ServedModel> served);
    void answer(const Pending& pending, std::shared_ptr<ServedModel> served, Prepared prepared);
    void respond(const Pending& pending, const HttpResponse& response);
    void finish(const Pending& pending, const char* route,
                std::optional<AnswerFigures> answer = std::nullopt);
    void answer_directly(Exchange& exchange);
    void answer_options(Exchange& exchange);
    void tick();
    void look_for_lost_rank(Clock::time_point now);
    void look_for_progress(Clock::time_point now);
    void end_by_failure(const std::string& failure);
    void drain(pid_t sender);
    void begin_drain();
    void look_for_end_of_drain(Clock::time_point now);
    std::string end_reason() const;

    EventLoop& loop_;
    const Options& options_;
    Models& models_;
    std::unordered_set<std::shared_ptr<Reply>> replies_;
    size_t n_pending_ = 0;  // requests that the workers have, or that wait for their model
    bool is_draining_ = false;
    bool drain_is_over_ = false;  // the time of --drain-timeout is
    Clock::time_point drained_at_;
    std::string failure_;
    Clock::time_point failed_at_;

    // Of a model that several processes share.
    bool is_cut_off_ = false;
    std::optional<Clock::time_point> ended_by_launcher_;  // when it has said so
    uint64_t n_steps_ = 0;                                // of the engine, when last looked
    Clock::time_point progressed_at_;
    Clock::duration longest_step_{};
    const Keys& keys_;
    const HostCheck hosts_;
    HttpServer& http_;
    Workers workers_;  // last: their tasks use all of the above
};

}  // namespace server
