// SPDX-License-Identifier: Apache-2.0
#include "job_queue.h"

#include <algorithm>
#include <utility>

namespace server {

namespace {

// Changes the end of an answer of one token to that of none.
void leave_answer_out(minim_request_state& state) {
    const bool is_stopped = state.finish == MINIM_FINISH_STOPPED || state.finish == MINIM_FINISH_TIMEOUT;
    if (!is_stopped) state.finish = MINIM_FINISH_LENGTH;
    state.n_generated = state.n_reasoning = 0;
    state.stop_token = state.stop_text = -1;
    state.stop_logprob = 0;
}

}  // namespace

JobQueue::JobQueue(EventLoop& loop, minim::Engine& engine, size_t n_slots, size_t n_queue)
    : loop_(loop),
      engine_(engine),
      n_queue_(n_queue),
      slots_(n_slots),
      n_free_(n_slots),
      conversations_(n_slots) {}

JobQueue::~JobQueue() {
    while (!waiting_.empty()) cancel(*waiting_.front());
    for (size_t i = 0; i < slots_.size(); ++i)
        if (slots_[i]) cancel(*slots_[i]);
}

void JobQueue::submit(const std::shared_ptr<Job>& job) {
    job->jobs_ = this;
    job->number_ = n_submitted_++;
    job->submitted_ = Job::Clock::now();
    const auto later = std::find_if(waiting_.begin(), waiting_.end(),
                                    [&](const auto& other) { return other->priority < job->priority; });
    waiting_.insert(later, job);
    start_waiting();
}

void JobQueue::start_waiting() {
    while (n_free_ > 0 && !waiting_.empty()) {
        const std::shared_ptr<Job> job = std::move(waiting_.front());
        waiting_.pop_front();
        const auto free = std::find(slots_.begin(), slots_.end(), nullptr);
        start(job, static_cast<int32_t>(free - slots_.begin()));
    }
}

void JobQueue::start(const std::shared_ptr<Job>& job, int32_t slot) {
    job->started_ = Job::Clock::now();
    job->slot_ = slot;
    slots_[slot] = job;
    --n_free_;
    {
        const std::lock_guard lock(mutex_);
        conversations_[slot].is_running = true;
    }
    minim_request_params params = MINIM_REQUEST_PARAMS_INIT;
    params.timeout_ms = job->timeout_ms;
    params.priority = job->priority;
    params.notify = wake;
    params.notify_user_data = job.get();
    minim_error error = MINIM_ERROR_INIT;
    minim_request* request = nullptr;
    if (minim_engine_submit(engine_.get(), job->sampling.get(), job->prompt->data(), job->prompt->size(),
                            &params, &request, &error) == MINIM_OK) {
        job->request_.reset(request);
        return;
    }
    JobEnd result;
    result.error = error.message;
    loop_.post([this, job, result] { end(*job, result); });
}

minim_request_state Job::state() const {
    const minim_request_state none = MINIM_REQUEST_STATE_INIT;
    minim_request_state state = none;
    minim_error ignored = MINIM_ERROR_INIT;
    const bool is_known = request_ && minim_request_get_state(request_.get(), &state, &ignored) == MINIM_OK;
    return is_known ? state : none;
}

// Called on any thread. Posts one task to the loop, even if a step of the engine wakes several jobs.
void JobQueue::wake(void* user_data) {
    Job& job = *static_cast<Job*>(user_data);
    if (job.is_woken_.exchange(true)) return;
    JobQueue& jobs = *job.jobs_;
    bool is_first = false;
    {
        const std::lock_guard lock(jobs.mutex_);
        is_first = jobs.woken_.empty();
        jobs.woken_.push_back(job.shared_from_this());
    }
    if (is_first) jobs.loop_.post([&jobs] { jobs.take_woken(); });
}

void JobQueue::take_woken() {
    std::vector<std::shared_ptr<Job>> woken;
    {
        const std::lock_guard lock(mutex_);
        woken.swap(woken_);
    }
    for (const std::shared_ptr<Job>& job : woken) {
        job->is_woken_ = false;
        if (job->request_) take_tokens(*job);
    }
}

void JobQueue::take_tokens(Job& job) {
    tokens_.clear();
    minim_error error = MINIM_ERROR_INIT;
    int32_t next = MINIM_NEXT_PENDING;
    minim_status status = MINIM_OK;
    for (;;) {
        minim_token token = MINIM_TOKEN_INIT;
        status = minim_request_next(job.request_.get(), 0, &token, &next, &error);
        if (status != MINIM_OK || next != MINIM_NEXT_TOKEN) break;
        if (token.prompt_rank == 0 && job.wants_no_token) continue;
        Token& added = (token.prompt_rank > 0 ? job.prompt_tokens : tokens_).emplace_back();
        added.id = token.id;
        if (token.prompt_rank == 0) job.generated_.push_back(token.id);
        added.text.assign(token.text, token.text_length);
        added.logprob = token.logprob;
        added.top.assign(token.top, token.top + token.n_top);
        added.prompt_rank = token.prompt_rank;
    }
    const auto kept = job.shared_from_this();  // its callbacks may cancel the job
    if (!tokens_.empty() && job.on_tokens) job.on_tokens(tokens_);
    if (!job.request_ || (status == MINIM_OK && next == MINIM_NEXT_PENDING)) return;
    JobEnd result;
    minim_error ignored = MINIM_ERROR_INIT;
    result.is_their_error = status == MINIM_E_INVALID || status == MINIM_E_UNSUPPORTED;
    if (minim_request_get_state(job.request_.get(), &result.state, &ignored) != MINIM_OK ||
        status != MINIM_OK)
        result.error = status != MINIM_OK ? error.message : ignored.message;
    if (job.wants_no_token) leave_answer_out(result.state);
    end(job, result);
}

void JobQueue::end(Job& job, const JobEnd& result) {
    if (job.slot_ < 0) return;  // cancelled meanwhile
    JobEnd complete = result;
    complete.slot = job.slot_;
    complete.waited_us =
        std::chrono::duration_cast<std::chrono::microseconds>(job.started_ - job.submitted_).count();
    const auto on_end = std::exchange(job.on_end, nullptr);
    release(job);
    if (on_end) on_end(complete);
}

// Frees the job's slot for the next one.
void JobQueue::release(Job& job) {
    const auto kept = job.shared_from_this();
    job.on_tokens = nullptr;
    job.on_end = nullptr;
    job.request_.reset();  // from here on it is not woken any more
    if (job.slot_ < 0) return;
    std::vector<int32_t> tokens = *job.prompt;
    tokens.insert(tokens.end(), job.generated_.begin(), job.generated_.end());
    const int32_t slot = std::exchange(job.slot_, -1);
    slots_[slot].reset();
    ++n_free_;
    {
        const std::lock_guard lock(mutex_);
        conversations_[slot] = {.tokens = std::move(tokens), .is_running = false};
    }
    start_waiting();
}

std::optional<std::vector<int32_t>> JobQueue::conversation(int64_t slot) {
    const std::lock_guard lock(mutex_);
    const Conversation& conversation = conversations_[slot];
    return conversation.is_running ? std::nullopt : std::optional(conversation.tokens);
}

void JobQueue::set_conversation(int64_t slot, std::vector<int32_t> tokens) {
    const std::lock_guard lock(mutex_);
    if (!conversations_[slot].is_running) conversations_[slot].tokens = std::move(tokens);
}

void JobQueue::cancel(Job& job) {
    const auto kept = job.shared_from_this();
    std::erase(waiting_, kept);
    release(job);
}

}  // namespace server
