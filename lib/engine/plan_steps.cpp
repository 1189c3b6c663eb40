// SPDX-License-Identifier: Apache-2.0
// Plans the steps of an engine: which requests run, their pages, and how many of their tokens.
#include <algorithm>
#include <utility>

#include "base/error.h"
#include "engine/engine.h"

namespace minim::engine {

using backend::k_kv_page_tokens;

void Engine::admit() {
    while (!waiting_.empty()) {
        Work& next = *waiting_.front();
        const bool has_place = std::ssize(running_) < params_.n_requests;
        if (has_place && start(next)) {
            move_in_order(waiting_.begin(), waiting_, running_);
            continue;
        }
        // A request of higher priority does not wait for the end of one of lower priority.
        if (running_.empty()) return;
        const auto last = std::prev(running_.end());
        if ((*last)->priority() >= next.priority()) return;
        preempt(last);
    }
}

// Gives the request the cached pages of its tokens, and reserves pages for the other tokens and one more. Returns false
// if there are too few pages. One page must also be left for each running request, or one would be preempted at once.
bool Engine::start(Work& work) {
    Sequence& sequence = work.sequence;
    const auto known =
        std::span(sequence.tokens).first(sequence.tokens.size() - 1);  // the last gives the logits
    sequence.kv.emplace(kv::Sequence::unreserved(pool_, n_context_));
    sequence.n_evaluated = 0;
    if (params_.keep_prefixes) {
        prefixes_.find(known);
        sequence.n_evaluated = prefixes_.extend(known, *sequence.kv);
    }
    share_running(work);
    const int64_t n_wanted = kv::page_count(sequence.n_tokens() + 1) - sequence.kv->n_pages();
    if (!get_reservation(work, n_wanted + std::ssize(running_))) {
        sequence.kv.reset();
        sequence.n_evaluated = 0;
        return false;
    }
    sequence.kv->limit_reservation(n_wanted);
    if (params_.keep_prefixes) sequence.n_evaluated = prefixes_.extend(known, *sequence.kv);
    share_running(work);
    if (work.state.queue_us == 0) {
        work.state.n_cached = sequence.n_evaluated;
        const auto waited = Clock::now() - work.submitted;
        work.state.queue_us = std::max<int64_t>(microseconds(waited), 1);
    }
    return true;
}

// Reserves pages that are free or that the prefix cache drops. The prefix cache drops none if all of them would not
// suffice.
bool Engine::get_reservation(Work& work, int64_t n_pages) {
    if (work.sequence.kv->try_reserve(n_pages)) return true;
    if (pool_->state().n_unclaimed() + prefixes_.n_droppable() < n_pages) return false;
    while (!work.sequence.kv->try_reserve(n_pages))
        if (!prefixes_.drop_oldest()) return false;
    return true;
}

// Moves a request back to the waiting ones; its evaluated pages stay in the prefix cache as long as there is room.
void Engine::preempt(WorkList::iterator work) {
    Sequence& sequence = (*work)->sequence;
    keep_prefix(**work, sequence.n_evaluated);
    sequence.kv.reset();
    sequence.n_evaluated = 0;
    ++(*work)->state.n_preempted;
    ++counts_.n_preempted;
    move_in_order(work, running_, waiting_);
}

// Plans the next token of each answer, and draft tokens after it.
void Engine::plan_answers() {
    std::vector<Sequence*> answers;
    for (auto it = running_.begin(); it != running_.end();) {
        Work& work = **it;
        if (!work.is_answering() || get_page(work)) {  // a preempted request comes later in the list
            if (work.is_answering()) answers.push_back(&work.sequence);
            ++it;
        } else {
            preempt(it++);
        }
    }
    if (answers.empty()) return;
    const bool has_prompts = std::ssize(answers) < std::ssize(running_);
    const int64_t n_for_prompts = has_prompts ? params_.n_prompt_rows : 0;
    const int64_t n_free_rows = params_.n_batch - std::ssize(answers) - n_for_prompts;
    const int64_t n_free_logits = scheduler_.n_logits_rows() - std::ssize(running_);
    scheduler_.add_answers(answers, std::clamp<int64_t>(n_free_rows, 0, n_free_logits));
}

// Takes a page for the next position. If there is none, preempts the last of the running requests; returns false if
// that is the work itself.
bool Engine::get_page(Work& work) {
    Sequence& sequence = work.sequence;
    while (!sequence.kv->try_hold(sequence.n_evaluated, sequence.n_evaluated + 1)) {
        if (prefixes_.drop_oldest()) continue;
        const auto last = std::prev(running_.end());
        if (last->get() == &work) return false;
        preempt(last);
    }
    return true;
}

// Plans chunks of prompts of the highest priority: the oldest request first, then short prompts, which leave more to
// the others. No request gets more than an equal share of the rest.
void Engine::plan_prompts(int64_t n_rows) {
    std::vector<Work*> prompts;
    for (const auto& work : running_) {
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
            const auto known = std::span(sequence.tokens).first(sequence.tokens.size() - 1);
            if (params_.keep_prefixes) sequence.n_evaluated = prefixes_.extend(known, kv);
            share_running(*prompts[i]);
            kv.limit_reservation(kv::page_count(sequence.n_tokens() + 1) - kv.n_pages());
            if (waits_for_prefix(*prompts[i], planned)) continue;
        }
        const int64_t share = n_rows / static_cast<int64_t>(prompts.size() - i);
        const int64_t n = std::min({std::max(share, k_min_prompt_rows), n_rows, sequence.n_due()});
        if (!kv.try_hold(sequence.n_evaluated, sequence.n_evaluated + n))
            fail_internal("reserved pages are missing");
        scheduler_.add_chunk(sequence, n, sequence.n_tokens() - 1);
        planned.push_back(prompts[i]);
        n_rows -= n;
    }
}

// Shares the KV cache that another running request has of the same tokens: whole pages, and a copy of the partly
// filled one once it is complete as far as needed. The last token of a prompt is always evaluated, for its logits.
void Engine::share_running(Work& work) {
    Sequence& own = work.sequence;
    if (own.n_evaluated != own.kv->n_pages() * k_kv_page_tokens) return;
    const int64_t n_wanted = own.n_tokens() - 1;
    const Sequence* longest = nullptr;
    int64_t n_known = own.n_evaluated;
    int64_t n_to_come = 0;  // tokens that both have in common and `longest` has yet to evaluate
    for (const auto& other : running_) {
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
bool Engine::waits_for_prefix(const Work& work, std::span<Work* const> planned) const {
    const Sequence& own = work.sequence;
    return std::ranges::any_of(planned, [&](const Work* other) {
        if (other->sequence.n_evaluated < own.n_evaluated) return false;
        const int64_t n_common = kv::common_length(own.tokens, other->sequence.tokens);
        const int64_t n_shared = std::min(n_common, own.n_tokens() - 1);
        if (n_shared == own.n_tokens() - 1 && n_shared > own.n_evaluated) return true;
        return n_shared / k_kv_page_tokens * k_kv_page_tokens > own.n_evaluated;
    });
}

void Engine::keep_prefix(const Work& work, int64_t n_positions) {
    if (!params_.keep_prefixes || !work.sequence.kv || n_positions == 0) return;
    prefixes_.keep(std::span(work.sequence.tokens).first(n_positions), *work.sequence.kv);
}

}  // namespace minim::engine
