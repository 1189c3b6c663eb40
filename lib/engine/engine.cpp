#include "engine/engine.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "engine/session.h"

namespace minim::engine {
namespace {

using backend::k_kv_page_tokens;
using Clock = Request::Clock;

constexpr int64_t k_least_prompt_rows = 32;  // of one prompt in a step: fewer waste the weights read for them

int64_t microseconds(Clock::duration duration) {
    return std::chrono::duration_cast<std::chrono::microseconds>(duration).count();
}

int64_t kv_tokens(const model::Model& model, const EngineParams& params) {
    constexpr int64_t k_limit = int64_t{1} << 40;
    if (params.n_kv_tokens == 0) return model.config().n_context_train;
    if (params.n_kv_tokens < 1 || params.n_kv_tokens > k_limit)
        fail(Status::invalid, "keys and values of {} tokens are not possible", params.n_kv_tokens);
    return params.n_kv_tokens;
}

EngineParams checked(EngineParams params) {
    constexpr int64_t k_most = model::k_most_step_rows;
    if (params.n_requests < 1 || params.n_requests > k_most)
        fail(Status::invalid, "n_requests is {}; 1 to {} are possible", params.n_requests, k_most);
    if (params.n_batch < params.n_requests || params.n_batch > k_most) {
        fail(Status::invalid, "n_batch is {}; {} (n_requests) to {} are possible", params.n_batch,
             params.n_requests, k_most);
    }
    if (params.n_prompt_rows < 0 || params.n_prompt_rows > params.n_batch)
        fail(Status::invalid, "n_prompt_rows is {}; 0 to {} are possible", params.n_prompt_rows,
             params.n_batch);
    if (params.n_prompt_rows == 0) params.n_prompt_rows = std::max<int64_t>(params.n_batch / 4, 1);
    return params;
}

std::shared_ptr<kv::PagePool> pool_of(const model::Model& model, const EngineParams& params,
                                      int64_t n_pages) {
    auto pool = make_pool(model, params.k_format, params.v_format);
    pool->keep_pages(n_pages);
    return pool;
}

}  // namespace

Engine::Work::Work(std::shared_ptr<Request> r, const model::Model& model, int64_t n_order)
    : request(std::move(r)),
      order(n_order),
      answer(model, request->params().generate),
      tokens(request->prompt().begin(), request->prompt().end()),
      drafter(request->params().generate.n_draft) {
    answer.follow(tokens);
    state.n_prompt = static_cast<int64_t>(tokens.size());
    state.seed = answer.seed();
}

bool Engine::Work::goes_before(const Work& other) const {
    const int32_t priority = request->params().priority;
    const int32_t others = other.request->params().priority;
    return priority != others ? priority > others : order < other.order;
}

void Engine::move_in_order(WorkList::iterator work, WorkList& from, WorkList& to) noexcept {
    const auto place =
        std::ranges::find_if(to, [&](const auto& other) { return (*work)->goes_before(*other); });
    to.splice(place, from, work);
}

Engine::Engine(std::shared_ptr<const model::Model> model, const EngineParams& params, const Logger& log)
    : model_(std::move(model)),
      params_(checked(params)),
      log_(log),
      n_pages_(kv::page_count(kv_tokens(*model_, params))),
      n_context_(std::min(n_pages_ * k_kv_page_tokens, model_->config().n_context_train)),
      pool_(pool_of(*model_, params_, n_pages_)),
      prefixes_(pool_),
      space_(model_->stages(), model_->config(), params_.n_batch, n_context_),
      logits_(static_cast<uint64_t>(params_.n_requests * model_->config().n_vocab) * sizeof(float),
              "logits") {
    rows_.reserve(static_cast<size_t>(params_.n_batch));
    asking_.reserve(static_cast<size_t>(params_.n_requests));
    thread_ = start_thread("minim-engine", "the engine's thread", [this] { run(); });
}

Engine::~Engine() {
    {
        const std::lock_guard lock(mutex_);
        stopping_.trigger();
    }
    changed_.notify_all();
    thread_.join();
}

void Engine::check_length(uint64_t n_tokens) const {
    if (n_tokens < static_cast<uint64_t>(n_context_)) return;
    ErrorFacts facts;
    facts.requested = static_cast<int64_t>(std::min<uint64_t>(n_tokens, INT64_MAX));
    facts.available = n_context_ - 1;
    throw Error(Status::context_full, Reason::none,
                format_text("a prompt of {} tokens does not fit into a context of {} with an answer",
                            n_tokens, n_context_),
                facts);
}

std::shared_ptr<Request> Engine::submit(std::vector<int32_t> prompt, RequestParams params) {
    home_.require("the engine");
    if (prompt.empty()) fail(Status::invalid, "the prompt is empty");
    check_length(prompt.size());
    check_ids(prompt, model_->config());
    if (params.timeout_ms < 0) fail(Status::invalid, "a timeout of {} ms", params.timeout_ms);
    auto request = std::make_shared<Request>(std::move(prompt), std::move(params));
    WorkList one;
    one.push_back(std::make_unique<Work>(request, *model_, 0));
    {
        const std::lock_guard lock(mutex_);
        if (is_draining_) fail(Status::invalid, "the engine takes no more requests");
        one.front()->order = n_submitted_++;
        submitted_.splice(submitted_.end(), one);
        ++state_.n_waiting;
        is_idle_ = false;
    }
    changed_.notify_all();
    return request;
}

bool Engine::drain(Clock::time_point deadline) {
    home_.require("the engine");
    std::unique_lock lock(mutex_);
    is_draining_ = true;
    const auto is_idle = [&] { return is_idle_; };
    if (deadline == Clock::time_point::max()) {
        changed_.wait(lock, is_idle);
        return true;
    }
    return changed_.wait_until(lock, deadline, is_idle);
}

EngineState Engine::state() const {
    home_.require("the engine");
    const std::lock_guard lock(mutex_);
    return state_;
}

void Engine::save_prefixes(const std::string& path, const CancelToken* cancel) {
    run_between_steps([&] { prefixes_.save(path, model_->fingerprint(), cancel); });
}

int64_t Engine::load_prefixes(const std::string& path, const CancelToken* cancel) {
    int64_t n_pages = 0;
    run_between_steps([&] { n_pages = prefixes_.load(path, model_->fingerprint(), cancel); });
    return n_pages;
}

// On the engine's thread; throws here what the task throws there.
void Engine::run_between_steps(std::function<void()> task) {
    home_.require("the engine");
    if (!params_.keep_prefixes) fail(Status::invalid, "this engine keeps no prefixes");
    std::packaged_task<void()> packaged(std::move(task));
    std::future<void> done = packaged.get_future();
    {
        const std::lock_guard lock(mutex_);
        tasks_.push_back(std::move(packaged));
    }
    changed_.notify_all();
    done.get();
}

void Engine::run_tasks() {
    std::vector<std::packaged_task<void()>> tasks;
    {
        const std::lock_guard lock(mutex_);
        tasks.swap(tasks_);
    }
    for (auto& task : tasks) task();
}

void Engine::run() {
    while (wait_for_work()) {
        run_tasks();
        try {
            make_step();
        } catch (const Error& error) {
            if (error.status() == Status::cancelled) continue;  // the engine ends
            fail_running(error);
        } catch (const std::bad_alloc&) {
            fail_running(Error(Status::out_of_memory, Reason::none, "out of memory"));
        } catch (const std::exception& error) {
            fail_running(Error(Status::internal, Reason::none, error.what()));
        }
        remove_ended();
    }
    for (WorkList* list : {&running_, &waiting_})
        for (const auto& work : *list) end(*work, Finish::stopped, std::nullopt);
}

// The mutex is held.
void Engine::publish_state() {
    const auto n_left = [](const WorkList& list) {
        return std::ranges::count_if(list, [](const auto& work) { return !work->ended; });
    };
    const kv::PoolState pool = pool_->state();
    counts_.n_waiting = n_left(waiting_) + static_cast<int64_t>(submitted_.size());
    counts_.n_running = n_left(running_);
    counts_.n_pages = pool.n_pages;
    counts_.n_pages_held = pool.n_held;
    counts_.n_pages_cached = prefixes_.n_pages();
    state_ = counts_;
}

// Takes what was submitted meanwhile. False when the engine is to end.
bool Engine::wait_for_work() {
    std::unique_lock lock(mutex_);
    const auto has_work = [&] {
        return !submitted_.empty() || !waiting_.empty() || !running_.empty() || !tasks_.empty();
    };
    publish_state();
    is_idle_ = submitted_.empty() && waiting_.empty() && running_.empty();
    if (is_idle_) changed_.notify_all();  // whoever drains it
    changed_.wait(lock, [&] { return has_work() || stopping_.triggered(); });
    while (!submitted_.empty()) move_in_order(submitted_.begin(), submitted_, waiting_);
    return !stopping_.triggered();
}

void Engine::make_step() {
    end_unwanted(waiting_);
    end_unwanted(running_);
    remove_ended();
    admit();
    rows_.clear();
    asking_.clear();
    for (const auto& work : running_) {
        work->n_rows = 0;
        work->guess.clear();
    }
    plan_answers();
    const auto n_answers = static_cast<int64_t>(rows_.size());
    const int64_t n_left = params_.n_batch - n_answers;
    plan_prompts(n_answers > 0 ? std::min(n_left, params_.n_prompt_rows) : n_left);
    if (rows_.empty()) return;

    ask_for_shortlists();
    const Clock::time_point start = Clock::now();
    model_->forward().step(rows_, space_, {logits_.as<float>(), queries_}, &stopping_);
    const std::chrono::duration<double> taken = Clock::now() - start;
    ++counts_.n_steps;
    counts_.n_rows += static_cast<int64_t>(rows_.size());
    for (const auto& work : running_) {
        const int64_t n_before = work->n_evaluated;
        work->n_evaluated += work->n_rows;
        // Of a prompt at once, so that others need not read it too; of an answer when it ends.
        if (n_before < work->state.n_prompt &&
            work->n_evaluated / k_kv_page_tokens > n_before / k_kv_page_tokens)
            keep_prefix(*work, work->n_evaluated / k_kv_page_tokens * k_kv_page_tokens);
    }
    int64_t row = 0;
    for (Work* work : asking_) {
        const auto n_rows = static_cast<int64_t>(work->guess.size()) + 1;
        choose(*work, row, taken.count());
        row += n_rows;
    }
}

// What is enough of each row of logits, where the device that computes them can tell.
void Engine::ask_for_shortlists() {
    queries_.clear();
    if (!space_.keeps_logits()) return;
    for (const Work* work : asking_)
        queries_.insert(queries_.end(), work->guess.size() + 1, work->answer.query(work->guess));
    const auto is_row = [](const ShortlistQuery& query) { return query.n_candidates == 0; };
    if (std::ranges::all_of(queries_, is_row)) queries_.clear();
}

LogitsRow Engine::logits_row(int64_t row) {
    const bool has_top = !queries_.empty() && queries_[static_cast<size_t>(row)].n_candidates > 0;
    LogitsRow logits;
    if (has_top) logits.top = space_.shortlist(row);
    logits.whole = [this, row, has_top] {
        const auto n_vocab = static_cast<size_t>(model_->config().n_vocab);
        float* whole = logits_.as<float>() + static_cast<size_t>(row) * n_vocab;
        if (has_top) model_->forward().fetch_logits(space_, row, whole);
        return std::span<const float>(whole, n_vocab);
    };
    return logits;
}

// Ends what was cancelled or has waited too long.
void Engine::end_unwanted(WorkList& list) {
    const Clock::time_point now = Clock::now();
    for (const auto& work : list) {
        const int64_t timeout = work->request->params().timeout_ms;
        if (work->request->is_cancelled()) {
            end(*work, Finish::stopped, std::nullopt);
        } else if (timeout > 0 && now - work->submitted >= std::chrono::milliseconds(timeout)) {
            end(*work, Finish::timeout, std::nullopt);
        }
    }
}

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
        if ((*last)->request->params().priority >= next.request->params().priority) return;
        set_aside(last);
    }
}

// Gives the request what is known of its tokens, and the promise of pages for the others and one more. False
// where there are too few: those that run must have one page more each, or somebody would be set aside at
// once.
bool Engine::start(Work& work) {
    const auto n_tokens = static_cast<int64_t>(work.tokens.size());
    const auto known = std::span(work.tokens).first(work.tokens.size() - 1);  // the last one gives the logits
    work.kv.emplace(kv::Sequence::unpromised(pool_, n_context_));
    if (params_.keep_prefixes) {
        prefixes_.find(known);
        prefixes_.extend(known, *work.kv);
    }
    const int64_t n_wanted = kv::page_count(n_tokens + 1) - work.kv->n_pages();
    if (!get_promise(work, n_wanted + std::ssize(running_))) {
        work.kv.reset();
        return false;
    }
    work.kv->limit_promise(n_wanted);
    work.n_evaluated = params_.keep_prefixes ? prefixes_.extend(known, *work.kv) : 0;
    if (work.state.queue_us == 0) {
        work.state.n_cached = work.n_evaluated;
        work.state.queue_us = std::max<int64_t>(microseconds(Clock::now() - work.submitted), 1);
    }
    return true;
}

// Of pages that nobody needs, or that the prefix cache lets go of. It loses none where all together are too
// few.
bool Engine::get_promise(Work& work, int64_t n_pages) {
    if (work.kv->try_promise(n_pages)) return true;
    if (pool_->state().n_unclaimed() + prefixes_.n_droppable() < n_pages) return false;
    while (!work.kv->try_promise(n_pages))
        if (!prefixes_.drop_oldest()) return false;
    return true;
}

// Back among those that wait; what it has evaluated stays known as long as there is room.
void Engine::set_aside(WorkList::iterator work) {
    keep_prefix(**work, (*work)->n_evaluated);
    (*work)->kv.reset();
    (*work)->n_evaluated = 0;
    ++(*work)->state.n_preempted;
    ++counts_.n_preempted;
    move_in_order(work, running_, waiting_);
}

// One row of each answer.
void Engine::plan_answers() {
    for (auto it = running_.begin(); it != running_.end();) {
        Work& work = **it;
        const bool is_answer = work.n_due() == 1 && work.state.prompt_us > 0;
        if (!is_answer) {
            ++it;
        } else if (get_page(work)) {  // whoever is set aside comes later in the list
            // In company the rows of others share the weights already.
            if (running_.size() == 1) guess(work);
            plan(work, 1);
            ++it;
        } else {
            set_aside(it++);
        }
    }
}

// A page for the next position. Where memory is short, the last of the running requests is set aside: false
// where that is the work itself.
bool Engine::get_page(Work& work) {
    while (!work.kv->try_hold(work.n_evaluated, work.n_evaluated + 1)) {
        if (prefixes_.drop_oldest()) continue;
        const auto last = std::prev(running_.end());
        if (last->get() == &work) return false;
        set_aside(last);
    }
    return true;
}

// Tokens that may come next, as many as are worth it and there are pages and logits for.
void Engine::guess(Work& work) const {
    const int64_t room = std::min(n_context_ - std::ssize(work.tokens), params_.n_requests) - 1;
    const auto tokens = work.drafter.guess(work.tokens, room);
    const int64_t end = work.n_evaluated + 1 + std::ssize(tokens);
    if (work.kv->try_hold(work.n_evaluated, end)) work.guess.assign(tokens.begin(), tokens.end());
}

// Pieces of prompts: the oldest request's first, then short ones, which leave more to the others. Nobody gets
// more than an equal share of what is left.
void Engine::plan_prompts(int64_t n_rows) {
    std::vector<Work*> prompts;
    for (const auto& work : running_)
        if (work->n_rows == 0) prompts.push_back(work.get());
    if (prompts.empty()) return;
    std::stable_sort(prompts.begin() + 1, prompts.end(),
                     [](const Work* a, const Work* b) { return a->n_due() < b->n_due(); });
    std::vector<Work*> planned;
    for (size_t i = 0; i < prompts.size() && n_rows > 0; ++i) {
        Work& work = *prompts[i];
        if (params_.keep_prefixes && work.n_evaluated == work.kv->n_pages() * k_kv_page_tokens) {
            work.n_evaluated =
                prefixes_.extend(std::span(work.tokens).first(work.tokens.size() - 1), *work.kv);
            work.kv->limit_promise(kv::page_count(std::ssize(work.tokens) + 1) - work.kv->n_pages());
            if (waits_for_prefix(work, planned)) continue;
        }
        const int64_t share = n_rows / static_cast<int64_t>(prompts.size() - i);
        const int64_t n = std::min({std::max(share, k_least_prompt_rows), n_rows, work.n_due()});
        if (!work.kv->try_hold(work.n_evaluated, work.n_evaluated + n))
            fail_internal("pages that were promised are not there");
        plan(work, n);
        planned.push_back(&work);
        n_rows -= n;
    }
}

// Whether somebody whose prompt begins alike, and is further on, is just reading what this one would read.
bool Engine::waits_for_prefix(const Work& work, std::span<Work* const> planned) const {
    return std::ranges::any_of(planned, [&](const Work* other) {
        if (other->n_evaluated < work.n_evaluated) return false;
        const int64_t n_common = kv::common_length(work.tokens, other->tokens);
        return std::min(n_common, work.n_due() + work.n_evaluated - 1) / k_kv_page_tokens * k_kv_page_tokens >
               work.n_evaluated;
    });
}

void Engine::plan(Work& work, int64_t n_rows) {
    work.n_rows = n_rows;
    for (int64_t i = 0; i < n_rows; ++i) {
        const int64_t position = work.n_evaluated + i;
        const bool is_last = position + 1 == std::ssize(work.tokens);
        rows_.push_back({work.tokens[static_cast<size_t>(position)], {&work.kv->view(), position}, is_last});
        if (is_last) asking_.push_back(&work);
    }
    for (size_t i = 0; i < work.guess.size(); ++i) {
        const auto position = std::ssize(work.tokens) + static_cast<int64_t>(i);
        rows_.push_back({work.guess[i], {&work.kv->view(), position}, true});
    }
}

void Engine::keep_prefix(const Work& work, int64_t n_positions) {
    if (!params_.keep_prefixes || !work.kv || n_positions == 0) return;
    prefixes_.keep(std::span(work.tokens).first(static_cast<size_t>(n_positions)), *work.kv);
}

void Engine::choose(Work& work, int64_t first_row, double seconds) {
    const Clock::time_point now = Clock::now();
    if (work.state.prompt_us == 0) {
        work.first_token = now;
        work.state.prompt_us = std::max<int64_t>(microseconds(now - work.submitted) - work.state.queue_us, 1);
    }
    work.state.generate_us = microseconds(now - work.first_token);
    const int64_t n_before = work.answer.n_chosen();
    try {
        choose_tokens(work, first_row);
        report(work);
    } catch (const Error& error) {
        return end(work, Finish::stopped, error);
    } catch (const std::bad_alloc&) {
        return end(work, Finish::stopped, Error(Status::out_of_memory, Reason::none, "out of memory"));
    }
    if (work.answer.has_ended()) return end(work, work.answer.reported_finish(), std::nullopt);
    if (running_.size() == 1 && rows_.size() == work.guess.size() + 1)
        work.drafter.learn(std::ssize(work.guess), work.answer.n_chosen() - n_before, seconds);
}

// One token, and further ones as long as they are those that were guessed: their logits are known.
void Engine::choose_tokens(Work& work, int64_t first_row) {
    for (size_t i = 0; !work.answer.has_ended(); ++i) {
        const auto token = work.answer.choose(logits_row(first_row + static_cast<int64_t>(i)));
        if (!token) return;
        work.tokens.push_back(*token);
        if (work.answer.has_ended()) return;
        if (std::ssize(work.tokens) >= n_context_) return work.answer.finish(Finish::context_full);
        if (i == work.guess.size() || *token != work.guess[i]) return;
        ++work.n_evaluated;
    }
}

void Engine::report(Work& work) {
    std::vector<TokenEvent> events;
    while (auto event = work.answer.take_event()) events.push_back(std::move(*event));
    work.state.n_generated = work.answer.n_reported();
    work.request->report(events, work.state);
}

void Engine::end(Work& work, Finish why, const std::optional<Error>& error) {
    if (work.ended) return;
    work.ended = true;
    work.state.finish = why;
    if (why == Finish::end) work.state.stop_token = work.answer.end_token();
    if (!error) keep_prefix(work, work.n_evaluated);
    work.kv.reset();
    {
        // Who sees the end sees a state without the request, too.
        const std::lock_guard lock(mutex_);
        publish_state();
    }
    work.request->end(work.state, error);
}

void Engine::remove_ended() {
    for (WorkList* list : {&waiting_, &running_})
        list->remove_if([](const std::unique_ptr<Work>& work) { return work->ended; });
}

// After a step that failed: nobody knows what the pages hold.
void Engine::fail_running(const Error& error) noexcept {
    try {
        log_.write(LogLevel::error, "a step of {} requests failed: {}", running_.size(), error.what());
    } catch (...) {
        // For want of memory, or thrown by the host's logger. The requests say it too.
    }
    for (const auto& work : running_) end(*work, Finish::stopped, error);
}

}  // namespace minim::engine
