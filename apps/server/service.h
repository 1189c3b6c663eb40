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

#include "http/event_loop.h"
#include "http/host_check.h"
#include "http/http_server.h"
#include "reply.h"
#include "serving.h"

namespace server {

class Service {
  public:
    Service(EventLoop& loop, const Serving& serving, std::shared_ptr<ServedModel> served);

    uint16_t port() const { return http_.port(); }
    // Returns the error that has ended the server: a rank of the model is lost; empty: none.
    const std::string& failure() const { return failure_; }
    // Returns whether a step may still be waiting for other processes, which do not answer.
    bool is_cut_off() const { return is_cut_off_; }

  private:
    using Clock = std::chrono::steady_clock;

    void handle(const std::shared_ptr<Exchange>& exchange);
    void prepare(const std::shared_ptr<Exchange>& exchange, size_t route);
    void answer(const std::shared_ptr<Exchange>& exchange, Prepared prepared, size_t route,
                Clock::time_point arrived);
    void finish(const Exchange& exchange, const char* route, Clock::time_point arrived,
                const std::string& details);
    void answer_directly(Exchange& exchange);
    void answer_options(Exchange& exchange);
    void tick();
    void look_for_lost_rank(Clock::time_point now);
    void look_for_progress(Clock::time_point now);
    void end_by_failure(const std::string& failure);
    void drain(pid_t sender);

    EventLoop& loop_;
    const Options& options_;
    const std::shared_ptr<ServedModel> served_;
    std::unordered_set<std::shared_ptr<Reply>> replies_;
    size_t n_pending_ = 0;  // requests that the workers have
    bool is_draining_ = false;
    std::string failure_;
    Clock::time_point failed_at_;

    // Of a model that several processes share.
    bool is_cut_off_ = false;
    std::optional<Clock::time_point> ended_by_launcher_;  // when it has said so
    uint64_t n_steps_ = 0;                                // of the engine, when last looked
    Clock::time_point progressed_at_;
    Clock::duration longest_step_{};
    const HostCheck hosts_;
    HttpServer http_;
    Workers workers_;  // last: their tasks use all of the above
};

}  // namespace server
