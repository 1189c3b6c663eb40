// SPDX-License-Identifier: Apache-2.0
// The thread that does all input and output. Only this thread accesses the state of requests, so the state needs no lock.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <memory>

namespace boost::asio {
class io_context;
}

namespace server {

class EventLoop {
  public:
    EventLoop();
    ~EventLoop();
    EventLoop(const EventLoop&) = delete;
    EventLoop& operator=(const EventLoop&) = delete;

    // Runs posted tasks until stop(). May be called again after that: what was posted meanwhile, and what waits, goes on.
    void run();
    void stop();  // any thread

    // Posts a task, from any thread. Tasks run in the order in which they were posted.
    void post(std::function<void()> task);
    // Calls the task every `interval` for as long as the loop runs. Call it on the loop's thread, or before run().
    void every(std::chrono::milliseconds interval, std::function<void()> task);
    // Calls the task at SIGTERM and SIGINT, with the process that has sent the signal; 0: a terminal. One loop of a process at a time.
    void on_termination(std::function<void(pid_t sender)> task);
    // The same for SIGHUP.
    void on_hangup(std::function<void(pid_t sender)> task);

    boost::asio::io_context& context();

  private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace server
