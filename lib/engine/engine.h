// SPDX-License-Identifier: Apache-2.0
// Continuous batching on a thread of its own: each step evaluates the next token of every answer and, within a
// budget of rows, chunks of prompts that are not read yet. Answers do not depend on batch composition.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/cancel.h"
#include "base/log.h"
#include "base/own_thread.h"
#include "engine/request.h"
#include "engine/request_lists.h"
#include "engine/scheduler.h"
#include "engine/step_planner.h"
#include "model/model.h"

namespace minim::engine {

struct EngineState {
    int64_t n_waiting = 0;
    int64_t n_running = 0;
    int64_t n_steps = 0;
    int64_t n_rows = 0;  // rows evaluated in all steps
    int64_t n_preempted = 0;
    int64_t n_pages = 0;
    int64_t n_pages_held = 0;    // owned by requests and the prefix cache
    int64_t n_pages_cached = 0;  // owned by the prefix cache, alone or with requests
    // Of prompt states in host memory.
    uint64_t host_cache_bytes = 0;
    int64_t n_host_pages = 0;
    int64_t n_host_stored = 0;    // pages that went there since the engine was created
    int64_t n_host_restored = 0;  // pages that came back
};

// Any thread.
class Engine {
  public:
    // Takes the memory for the KV cache, logits and activations. Throws invalid or out_of_memory.
    Engine(std::shared_ptr<const model::Model> model, const EngineParams& params, const Logger& log);
    // Ends running requests. Must not be called in a child of fork(), which does not have the engine's thread.
    ~Engine();
    Engine(const Engine&) = delete;
    Engine& operator=(const Engine&) = delete;

    // A thread cannot wait for its own end. If the caller is a callback on the engine's thread, this function stops the engine,
    // lets its thread call `free_itself` as the last thing that it does, and returns true. Otherwise it does nothing.
    bool free_after_callback(std::function<void()> free_itself);

    // Returns whether this process is a child of the one with the engine's thread. Then every call below throws invalid.
    bool is_left() const noexcept { return home_.is_left(); }

    // Throws context_full if a prompt of this length can never fit.
    void check_length(uint64_t n_tokens) const;

    // Submits a request. Throws invalid (an empty prompt, an id or parameter out of range, an engine that is ending) or
    // context_full (the prompt can never fit).
    std::shared_ptr<Request> submit(std::vector<int32_t> prompt, RequestParams params) {
        return submit(std::move(prompt), std::move(params), 1).front();
    }

    // Submits n requests with the same prompt, all or none. With a seed, answer i has the seed plus i.
    std::vector<std::shared_ptr<Request>> submit(std::vector<int32_t> prompt, RequestParams params,
                                                 int64_t n_answers);

    // Refuses new requests and waits until the others are done. Returns false if they are not done by the deadline.
    bool drain(Request::Clock::time_point deadline);

    EngineState state() const;
    // Returns the parameters with the sizes that were taken, and a sentence about them.
    const EngineParams& params() const noexcept { return params_; }
    const std::string& sizes_text() const noexcept { return sizes_text_; }

    // Write the prefix cache to a file, or add such a file to it; load returns the number of pages read. Both run
    // between two steps, while requests wait. They throw as kv::PrefixCache does, and invalid if the engine has no
    // prefix cache.
    void save_prefixes(const std::string& path, const CancelToken* cancel);
    int64_t load_prefixes(const std::string& path, const CancelToken* cancel);

    // Write the longest cached prefix of a text to a file of its own, and read such a file, for which other prefixes make room.
    // They return the number of the tokens that were saved, and the tokens that are cached then. Throw the same.
    int64_t save_prefix(std::vector<int32_t> tokens, const std::string& path, const CancelToken* cancel);
    std::vector<int32_t> load_prefix(const std::string& path, const CancelToken* cancel);
    // Drops what only this text has in the prefix cache. Returns the number of these tokens. Throws invalid.
    int64_t erase_prefix(std::vector<int32_t> tokens);

  private:
    using Clock = Request::Clock;

    void stop();
    void warm_up();
    void run_between_steps(std::function<void()> task);
    void run_tasks();
    void run();
    bool wait_for_work();
    void publish_state();
    void make_step();
    void run_step();
    bool is_step_unwanted() noexcept;
    bool look_at_requests() noexcept;
    void end_unwanted(const Work* spared);
    void report_progress(Work& work);
    void score_prompt(Work& work);
    void choose(Work& work);
    void end(Work& work, Finish why, const std::optional<Error>& error);
    bool has_run_out(const Work& work) const;
    void fail_running(const Error& error) noexcept;

    const std::shared_ptr<const model::Model> model_;
    const EngineParams params_;
    const std::string sizes_text_;
    const Logger& log_;
    const std::shared_ptr<kv::PagePool> pool_;

    // Used only by the engine's thread.
    RequestLists lists_;
    Scheduler scheduler_;
    StepPlanner planner_;
    EngineState counts_;
    bool is_in_step_ = false;
    bool is_preempted_ = false;  // a request of higher priority has ended the step
    bool is_step_over_ = false;  // the answer of is_step_unwanted() from its first yes on
    // Used by is_step_unwanted(), the only function that touches the members above during a step.
    std::mutex look_mutex_;
    Clock::time_point last_look_;     // the last check whether the step is still wanted
    Clock::duration longest_wait_{};  // between two such checks of the step

    mutable std::mutex mutex_;
    std::condition_variable changed_;
    WorkList submitted_;
    std::vector<std::packaged_task<void()>> tasks_;
    int64_t n_submitted_ = 0;
    EngineState state_;
    bool is_idle_ = true;  // the end of every request has been reported
    bool is_draining_ = false;
    CancelToken stopping_;
    CancelToken step_end_{[this] { return is_step_unwanted(); }};
    const HomeProcess home_;
    std::function<void()> free_itself_;  // used only by the engine's thread

    std::thread thread_;  // last: it uses all of the above
};

}  // namespace minim::engine
