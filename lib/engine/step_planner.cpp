// SPDX-License-Identifier: Apache-2.0
#include "engine/step_planner.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace minim::engine {

using backend::k_kv_page_tokens;
using Clock = Request::Clock;

namespace {

// A step can be ended only between layers. This is the longest time between two such checks, so that other requests
// wait for less than 100 ms.
constexpr auto k_longest_wait = std::chrono::milliseconds(80);
// The longest time for copies of pages to and from host memory between two steps, if it suffices for one page.
constexpr auto k_copy_time = std::chrono::milliseconds(20);
// Rows of logits for log-probabilities of prompts, beside one for each request.
constexpr int64_t k_scored_rows = 128;
constexpr int64_t k_min_prompt_rows = 32;  // of one prompt in a step: fewer waste the weights read for them

}  // namespace

StepPlanner::StepPlanner(const model::Text& text, const EngineParams& params,
                         std::shared_ptr<kv::PagePool> pool, RequestLists& lists, Scheduler& scheduler,
                         const kv::HostLimit& host)
    : text_(text),
      params_(params),
      pool_(std::move(pool)),
      lists_(lists),
      scheduler_(scheduler),
      prefixes_(pool_, params.keep_prefixes ? host : kv::HostLimit()),
      n_prompt_rows_(std::min(params.n_batch, k_first_prompt_rows)) {}

void StepPlanner::admit() {
    begin_copies();
    while (!lists_.waiting.empty()) {
        Work& next = *lists_.waiting.front();
        const bool has_place = std::ssize(lists_.running) < params_.n_requests;
        const Start started = has_place ? start(next) : Start::no_room;
        if (started == Start::yes) {
            lists_.start_first();
            continue;
        }
        if (started == Start::later) return;
        // A request of higher priority does not wait for the end of one of lower priority.
        if (lists_.running.empty()) return;
        const auto last = std::prev(lists_.running.end());
        if ((*last)->priority() >= next.priority()) return;
        preempt(last);
    }
}

// Gives the request the resident pages of its tokens, and reserves pages for the other tokens and one more. One page must also be
// left for each running request, or one would be preempted at once.
StepPlanner::Start StepPlanner::start(Work& work) {
    Sequence& sequence = work.sequence;
    const auto known = std::span(sequence.tokens).first(work.n_shareable());
    sequence.kv.emplace(kv::Sequence::unreserved(pool_, params_.n_context));
    sequence.n_evaluated = 0;
    if (params_.keep_prefixes) {
        prefixes_.find(known);
        sequence.n_evaluated = prefixes_.extend(known, *sequence.kv);
    }
    share_running(work);
    const int64_t n_wanted = kv::page_count(sequence.n_tokens() + 1) - sequence.kv->n_pages();
    const Start reserved = get_reservation(work, n_wanted + std::ssize(lists_.running));
    if (reserved != Start::yes) {
        sequence.kv.reset();
        sequence.n_evaluated = 0;
        return reserved;
    }
    sequence.kv->limit_reservation(n_wanted);
    if (params_.keep_prefixes) sequence.n_evaluated = prefixes_.extend(known, *sequence.kv);
    share_running(work);
    if (work.is_scoring()) make_room_for_scores();
    if (work.state.queue_us == 0) {
        try {
            work.make_answer(text_);
        } catch (...) {
            work.failure = current_error();
        }
        work.state.n_cached = sequence.n_evaluated;
        const auto waited = Clock::now() - work.submitted;
        work.state.queue_us = std::max<int64_t>(microseconds(waited), 1);
    }
    return Start::yes;
}

// Reserves pages that are free or that the prefix cache releases. The prefix cache releases none if all of them would not
// suffice. `later`: their copies to host memory go on before the next step.
StepPlanner::Start StepPlanner::get_reservation(Work& work, int64_t n_pages) {
    if (work.sequence.kv->try_reserve(n_pages)) return Start::yes;
    if (pool_->state().n_unclaimed() + prefixes_.n_droppable() < n_pages) return Start::no_room;
    while (!work.sequence.kv->try_reserve(n_pages)) {
        if (!may_copy()) return Start::later;
        if (!prefixes_.drop_oldest()) return Start::no_room;
    }
    return Start::yes;
}

void StepPlanner::begin_copies() {
    n_copied_before_ = prefixes_.n_stored() + prefixes_.n_restored();
    end_of_copies_ = Clock::now() + k_copy_time;
}

// Returns whether there is time for one more copy before the next step; always for the first one.
bool StepPlanner::may_copy() const {
    return prefixes_.n_stored() + prefixes_.n_restored() == n_copied_before_ || Clock::now() < end_of_copies_;
}

// Brings cached pages of a request back from host memory. Returns false if others are left there: they come before the next step.
bool StepPlanner::restore(Work& work) {
    Sequence& sequence = work.sequence;
    if (sequence.n_evaluated != sequence.kv->n_pages() * k_kv_page_tokens) return true;
    const auto known = std::span(sequence.tokens).first(work.n_shareable());
    const auto [n_positions, is_complete] =
        prefixes_.restore(known, *sequence.kv, [this] { return may_copy(); });
    if (work.state.n_preempted == 0) work.state.n_cached += n_positions - sequence.n_evaluated;
    sequence.n_evaluated = n_positions;
    return is_complete;
}

// Lets prompts whose log-probabilities are asked for have more rows in a step. Without memory for that they are read more slowly.
void StepPlanner::make_room_for_scores() {
    try {
        scheduler_.reserve_logits(std::min(params_.n_batch, params_.n_requests + k_scored_rows));
    } catch (const Error& error) {
        if (error.status() != Status::out_of_memory) throw;
    }
}

// Moves a request back to the waiting ones; its evaluated pages stay in the prefix cache as long as there is room.
void StepPlanner::preempt(WorkList::iterator work) {
    Sequence& sequence = (*work)->sequence;
    keep_prefix(**work, sequence.n_evaluated);
    sequence.kv.reset();
    sequence.n_evaluated = 0;
    ++(*work)->state.n_preempted;
    ++n_preempted_;
    lists_.stop(work);
}

void StepPlanner::plan() {
    scheduler_.begin();
    for (const auto& work : lists_.running) work->sequence.n_rows = 0;
    int64_t n_free_logits =
        scheduler_.n_logits_rows() - std::ssize(lists_.running);  // beside one for each request
    n_free_logits -= plan_answers(n_free_logits);
    const int64_t n_answer_rows = scheduler_.n_planned();
    const int64_t n_left = params_.n_batch - n_answer_rows;
    const int64_t n_most = n_answer_rows > 0 ? std::min(n_left, params_.n_prompt_rows) : n_left;
    plan_prompts(std::min(n_most, n_prompt_rows_), n_free_logits);
    n_planned_rows_ = scheduler_.n_planned() - n_answer_rows;
}

void StepPlanner::follow_step_time(Clock::duration longest_wait) {
    if (n_planned_rows_ == 0) return;
    const double ratio = std::chrono::duration<double>(k_longest_wait) / longest_wait;
    const auto n_fitting = static_cast<int64_t>(static_cast<double>(n_planned_rows_) * std::min(ratio, 2.0));
    if (ratio < 1.0 || n_fitting > n_prompt_rows_)
        n_prompt_rows_ = std::clamp(n_fitting, std::min(k_min_prompt_rows, params_.n_batch), params_.n_batch);
}

void StepPlanner::shorten_steps() noexcept {
    n_prompt_rows_ = std::max(n_prompt_rows_ / 2, k_min_prompt_rows);
}

// Plans the next token of each answer, and draft tokens after it, at most as many as there are rows of logits. Returns the number
// of draft tokens.
int64_t StepPlanner::plan_answers(int64_t n_free_logits) {
    std::vector<Sequence*> answers;
    for (auto it = lists_.running.begin(); it != lists_.running.end();) {
        Work& work = **it;
        if (!work.is_answering() || get_page(work)) {  // a preempted request comes later in the list
            if (work.is_answering()) answers.push_back(&work.sequence);
            ++it;
        } else {
            preempt(it++);
        }
    }
    if (answers.empty()) return 0;
    const bool has_prompts = std::ssize(answers) < std::ssize(lists_.running);
    const int64_t n_for_prompts = has_prompts ? params_.n_prompt_rows : 0;
    const int64_t n_free_rows = params_.n_batch - std::ssize(answers) - n_for_prompts;
    const bool has_scores =
        std::ranges::any_of(lists_.running, [](const auto& work) { return work->is_scoring(); });
    const int64_t n_most = has_scores ? n_free_logits / 2 : n_free_logits;
    scheduler_.add_answers(answers, std::clamp<int64_t>(n_free_rows, 0, n_most));
    return scheduler_.n_planned() - std::ssize(answers);
}

// Takes a page for the next position. If there is none, preempts the last of the running requests; returns false if
// that is the work itself.
bool StepPlanner::get_page(Work& work) {
    Sequence& sequence = work.sequence;
    while (!sequence.kv->try_hold(sequence.n_evaluated, sequence.n_evaluated + 1)) {
        if (prefixes_.drop_oldest()) continue;
        const auto last = std::prev(lists_.running.end());
        if (last->get() == &work) return false;
        preempt(last);
    }
    return true;
}

// Plans chunks of prompts of the highest priority: the oldest request first, then short prompts, which leave more to
// the others. No request gets more than an equal share of the rest. A prompt whose log-probabilities are asked for gets no more rows
// than there are rows of logits: one of its own, and n_free_logits for all of them.
void StepPlanner::plan_prompts(int64_t n_rows, int64_t n_free_logits) {
    std::vector<Work*> prompts;
    for (const auto& work : lists_.running) {
        if (work->sequence.n_rows > 0) continue;
        if (!prompts.empty() && work->priority() < prompts[0]->priority()) break;
        prompts.push_back(work.get());
    }
    if (prompts.empty()) return;
    std::stable_sort(prompts.begin() + 1, prompts.end(),
                     [](const Work* a, const Work* b) { return a->sequence.n_due() < b->sequence.n_due(); });
    std::vector<Work*> planned;
    for (size_t i = 0; i < prompts.size() && n_rows > 0; ++i) {
        Sequence& sequence = prompts[i]->sequence;
        kv::Sequence& kv = *sequence.kv;
        if (sequence.n_evaluated == kv.n_pages() * k_kv_page_tokens) {
            const auto known = std::span(sequence.tokens).first(prompts[i]->n_shareable());
            if (params_.keep_prefixes) sequence.n_evaluated = prefixes_.extend(known, kv);
            share_running(*prompts[i]);
            if (params_.keep_prefixes && !restore(*prompts[i])) continue;
            kv.limit_reservation(kv::page_count(sequence.n_tokens() + 1) - kv.n_pages());
            if (waits_for_prefix(*prompts[i], planned)) continue;
        }
        const int64_t share = n_rows / static_cast<int64_t>(prompts.size() - i);
        const bool is_scoring = prompts[i]->is_scoring();
        const int64_t first_wanted = is_scoring ? prompts[i]->n_scored : sequence.n_tokens() - 1;
        int64_t n = std::min({std::max(share, k_min_prompt_rows), n_rows, sequence.n_due()});
        if (is_scoring) n = std::min(n, first_wanted - sequence.n_evaluated + 1 + n_free_logits);
        if (!kv.try_hold(sequence.n_evaluated, sequence.n_evaluated + n))
            fail_internal("reserved pages are missing");
        scheduler_.add_chunk(sequence, n, first_wanted);
        n_free_logits -= std::max<int64_t>(sequence.n_logits_rows - 1, 0);
        planned.push_back(prompts[i]);
        n_rows -= n;
    }
}

// Shares the KV cache that another running request has of the same tokens: whole pages, and a copy of the partly
// filled one once it is complete as far as needed.
void StepPlanner::share_running(Work& work) {
    Sequence& own = work.sequence;
    if (own.n_evaluated != own.kv->n_pages() * k_kv_page_tokens) return;
    const int64_t n_wanted = work.n_shareable();
    const Sequence* longest = nullptr;
    int64_t n_known = own.n_evaluated;
    int64_t n_to_come = 0;  // tokens that both have in common and `longest` has yet to evaluate
    for (const auto& other : lists_.running) {
        const Sequence& theirs = other->sequence;
        if (other.get() == &work || !theirs.kv || std::min(theirs.n_evaluated, n_wanted) <= n_known) continue;
        const int64_t next = n_known;
        if (theirs.tokens[next] != own.tokens[next]) continue;  // nearly always
        const int64_t n_common = kv::common_length(own.tokens, theirs.tokens);
        const int64_t n = std::min({n_common, theirs.n_evaluated, n_wanted});
        if (n <= n_known) continue;
        longest = &theirs;
        n_known = n;
        n_to_come = std::min(n_common, n_wanted) - n;
    }
    if (longest == nullptr) return;
    for (int64_t i = own.kv->n_pages(); i < n_known / k_kv_page_tokens; ++i)
        own.kv->append_shared(longest->kv->page(i));
    own.n_evaluated = own.kv->n_pages() * k_kv_page_tokens;
    if (n_to_come == 0 && n_known > own.n_evaluated &&
        own.kv->append_copy(longest->kv->page(n_known / k_kv_page_tokens)))
        own.n_evaluated = n_known;
}

// Returns whether another request with a common prefix is already prefilling it (whole pages, or the rest of the
// prompt): then wait and share its pages.
bool StepPlanner::waits_for_prefix(const Work& work, std::span<Work* const> planned) const {
    const Sequence& own = work.sequence;
    return std::ranges::any_of(planned, [&](const Work* other) {
        if (other->sequence.n_evaluated < own.n_evaluated) return false;
        const int64_t n_common = kv::common_length(own.tokens, other->sequence.tokens);
        const int64_t n_shared = std::min(n_common, work.n_shareable());
        if (n_shared == work.n_shareable() && n_shared > own.n_evaluated) return true;
        return n_shared / k_kv_page_tokens * k_kv_page_tokens > own.n_evaluated;
    });
}

void StepPlanner::keep_prompts() {
    for (const auto& work : lists_.running) {
        const Sequence& sequence = work->sequence;
        const int64_t n_before = sequence.n_evaluated - sequence.n_rows;
        const int64_t n_pages = sequence.n_evaluated / k_kv_page_tokens;
        if (n_before < work->state.n_prompt && n_pages > n_before / k_kv_page_tokens)
            keep_prefix(*work, n_pages * k_kv_page_tokens);
    }
}

void StepPlanner::keep_prefix(const Work& work, int64_t n_positions) {
    if (!params_.keep_prefixes || !work.sequence.kv || n_positions == 0) return;
    prefixes_.keep(std::span(work.sequence.tokens).first(n_positions), *work.sequence.kv);
}

}  // namespace minim::engine
