// SPDX-License-Identifier: Apache-2.0
// The server while its model is opened: it listens, says that it is alive, and that it takes no requests yet.
#pragma once

#include <thread>

#include "http/auth.h"
#include "http/event_loop.h"
#include "http/http_server.h"
#include "options.h"

namespace server {

// Runs the loop on a thread of its own, and answers requests, until it is destroyed.
class Loading {
  public:
    Loading(EventLoop& loop, HttpServer& http, const Options& options, const Keys& keys);
    ~Loading();
    Loading(const Loading&) = delete;
    Loading& operator=(const Loading&) = delete;

  private:
    EventLoop& loop_;
    std::thread thread_;
};

}  // namespace server
