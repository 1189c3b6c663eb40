// SPDX-License-Identifier: Apache-2.0
// Plans the steps of an engine: which requests run, their pages, and how many of their tokens a step takes.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "engine/request_lists.h"
#include "engine/scheduler.h"
#include "format/format.h"
#include "kv/prefix_cache.h"

namespace minim::engine {

struct EngineParams {
    int64_t n_kv_tokens = 0;  // size of the KV cache in tokens, for all requests together; 0: what fits
                              // (kv/engine_sizes.h)
    std::optional<Format> k_format;  // none: F16
    std::optional<Format> v_format;
    int64_t n_requests = 64;    // running at once; others wait
    int64_t n_batch = 0;        // rows of a step; 0: Model::prompt_rows(), but at least n_requests
    int64_t n_prompt_rows = 0;  // limit of prompt rows in a step while answers are running; 0: a quarter
    bool keep_prefixes = true;  // pages of ended requests stay in the prefix cache
    // The maximum number of tokens of one request, at most n_kv_tokens; 0: the trained context or what fits.
    int64_t n_context = 0;
    bool fewer_requests = false;  // n_requests may be reduced if memory is short; without n_kv_tokens
    bool warm_up = false;         // compute two small steps before the first request
    // The limit of host memory for pages that leave the prefix cache; 0: none, UINT64_MAX: what is free.
    uint64_t host_cache_bytes = 0;
};

constexpr int64_t k_first_prompt_rows = 64;  // of the first steps, whose time is not known yet

// One thread at a time.
class StepPlanner {
  public:
    // `params` has the sizes that were taken; `host`: of the prefix cache. The references must outlive the planner.
    StepPlanner(const model::Text& text, const EngineParams& params, std::shared_ptr<kv::PagePool> pool,
                RequestLists& lists, Scheduler& scheduler, const kv::HostLimit& host = {});

    // Starts the waiting requests that fit. Afterwards the caller ends those that have a failure.
    void admit();
    // Plans a step of the running requests: rows for all answers, the rest for prompts.
    void plan();
    // Adapts the prompt rows of later steps to the longest time between two checks of a step, which is over.
    void follow_step_time(std::chrono::steady_clock::duration longest_wait);
    // Halves them after a step that was ended early: a long prompt then makes progress beside any number of urgent requests.
    void shorten_steps() noexcept;

    // Keeps the pages that the step has filled of prompts, so that other requests can share them at once.
    void keep_prompts();
    // Keeps the pages of the first n_positions tokens.
    void keep_prefix(const Work& work, int64_t n_positions);

    kv::PrefixCache& prefixes() noexcept { return prefixes_; }
    int64_t n_preempted() const noexcept { return n_preempted_; }

  private:
    enum class Start { yes, no_room, later };
    Start start(Work& work);
    Start get_reservation(Work& work, int64_t n_pages);
    void begin_copies();
    bool may_copy() const;
    bool restore(Work& work);
    void preempt(WorkList::iterator work);
    void make_room_for_scores();
    int64_t plan_answers(int64_t n_free_logits);
    bool get_page(Work& work);
    void plan_prompts(int64_t n_rows, int64_t n_free_logits);
    void share_running(Work& work);
    bool waits_for_prefix(const Work& work, std::span<Work* const> planned) const;

    const model::Text& text_;
    const EngineParams& params_;
    const std::shared_ptr<kv::PagePool> pool_;
    RequestLists& lists_;
    Scheduler& scheduler_;
    kv::PrefixCache prefixes_;
    int64_t n_prompt_rows_;       // the maximum number of rows of prompts in a step: adapted to its time
    int64_t n_planned_rows_ = 0;  // of prompts in the planned step
    int64_t n_preempted_ = 0;
    // Of the copies of pages to and from host memory between two steps.
    int64_t n_copied_before_ = 0;
    std::chrono::steady_clock::time_point end_of_copies_;
};

}  // namespace minim::engine
