// SPDX-License-Identifier: Apache-2.0
// Hands requests to the engine: as many at once as there are slots, the others wait in order of priority and arrival. The engine's thread
// wakes the event loop, which takes the tokens; no thread waits for an answer.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "http/event_loop.h"
#include "json.h"
#include "minim/minim.hpp"

namespace server {

struct Token {
    int32_t id = -1;
    std::string text;  // "" while a character or a possible stop text is incomplete
    float logprob = 0;
    std::vector<minim_token_probability> top;
    int32_t prompt_rank = 0;  // of a token of the prompt: 1 for the likeliest; 0: a generated token
    bool has_logprob = true;  // false: the first token of a prompt
};

struct JobEnd {
    minim_request_state state = MINIM_REQUEST_STATE_INIT;  // finish, counts, times
    int64_t waited_us = 0;                                 // before a slot was free
    int32_t slot = -1;
    std::string error;            // "" if the engine completed the answer
    bool is_their_error = false;  // what the request asks for is not possible
};

class JobQueue;

// One answer of the engine. Calls its functions on the loop's thread, `on_end` last and once; none after cancel().
class Job : public std::enable_shared_from_this<Job> {
  public:
    std::shared_ptr<const std::vector<int32_t>> prompt;
    minim::Sampling sampling;
    bool wants_no_token = false;  // max_tokens 0: the prompt is evaluated, and a token that is not reported
    std::shared_ptr<const Json> settings;  // of sampling, for /slots
    // Those after the first one, if their log-probabilities are asked for; complete before on_tokens.
    std::vector<Token> prompt_tokens;
    int64_t timeout_ms = 0;  // 0: none
    int32_t priority = 0;    // higher ones start first
    std::function<void(std::span<const Token>)> on_tokens;
    std::function<void(const JobEnd&)> on_end;

    uint64_t n_generated() const noexcept { return generated_.size(); }
    int32_t slot() const noexcept { return slot_; }      // -1: none
    int64_t number() const noexcept { return number_; }  // in the order of submission
    // Returns the counts and times so far; without a request, zeros.
    minim_request_state state() const;

  private:
    friend class JobQueue;
    using Clock = std::chrono::steady_clock;
    JobQueue* jobs_ = nullptr;
    std::unique_ptr<minim_request, void (*)(minim_request*)> request_{nullptr, minim_request_free};
    std::atomic<bool> is_woken_{false};
    int32_t slot_ = -1;
    std::vector<int32_t> generated_;
    int64_t number_ = 0;
    Clock::time_point submitted_;
    Clock::time_point started_;
};

class JobQueue {
  public:
    JobQueue(EventLoop& loop, minim::Engine& engine, size_t n_slots, size_t n_queue);
    // Cancels all jobs.
    ~JobQueue();
    JobQueue(const JobQueue&) = delete;
    JobQueue& operator=(const JobQueue&) = delete;

    // Returns whether the queue has room for `count` more jobs.
    bool has_room_for(size_t count) const { return waiting_.size() + count <= n_queue_ + n_free_; }
    void submit(const std::shared_ptr<Job>& job);
    void cancel(Job& job);

    std::span<const std::shared_ptr<Job>> slots() const { return slots_; }  // null where free
    // Any thread. Returns the tokens of the last job of a slot, its prompt and its answer; none while a job has the slot.
    std::optional<std::vector<int32_t>> conversation(int64_t slot);
    void set_conversation(int64_t slot, std::vector<int32_t> tokens);
    size_t n_waiting() const { return waiting_.size(); }
    size_t n_running() const { return slots_.size() - n_free_; }

  private:
    static void wake(void* job);
    void start_waiting();
    void start(const std::shared_ptr<Job>& job, int32_t slot);
    void take_woken();
    void take_tokens(Job& job);
    void end(Job& job, const JobEnd& result);
    void release(Job& job);

    EventLoop& loop_;
    minim::Engine& engine_;
    const size_t n_queue_;
    std::deque<std::shared_ptr<Job>> waiting_;
    std::vector<std::shared_ptr<Job>> slots_;
    struct Conversation {
        std::vector<int32_t> tokens;
        bool is_running = false;
    };
    size_t n_free_;
    int64_t n_submitted_ = 0;
    std::vector<Token> tokens_;  // of the job whose turn it is

    std::mutex mutex_;  // protects woken_ and conversations_
    std::vector<std::shared_ptr<Job>> woken_;
    std::vector<Conversation> conversations_;  // of each slot
};

}  // namespace server
