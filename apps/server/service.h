// SPDX-License-Identifier: Apache-2.0
// The server: finds the route of a request, checks its key, keeps the log, and ends in order.
#pragma once

#include <chrono>
#include <memory>
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
    Service(EventLoop& loop, Serving& serving);

    uint16_t port() const { return http_.port(); }
    // Returns the error that has ended the server: a rank of the model is lost; empty: none.
    const std::string& failure() const { return failure_; }

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
    void drain();

    EventLoop& loop_;
    Serving& serving_;
    JobQueue jobs_;
    Metrics metrics_;
    std::unordered_set<std::shared_ptr<Reply>> replies_;
    size_t n_pending_ = 0;  // requests that the workers have
    bool is_draining_ = false;
    std::string failure_;
    Clock::time_point failed_at_;
    const HostCheck hosts_;
    HttpServer http_;
    Workers workers_;  // last: their tasks use all of the above
};

}  // namespace server
