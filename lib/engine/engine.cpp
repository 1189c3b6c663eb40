// SPDX-License-Identifier: Apache-2.0
#include "engine/engine.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/memory_info.h"
#include "engine/open_sizes.h"
#include "engine/session.h"
#include "runtime/step_space.h"

namespace minim::engine {
namespace {

using backend::k_kv_page_tokens;

constexpr int64_t k_draft_rows = 32;  // of logits, beside one per request

// Returns the sizes of the engine: as its parameters say, or what fits.
kv::EngineSizes sizes_of(const model::Model& model, const EngineParams& params, const Logger& log) {
    constexpr int64_t k_limit = int64_t{1} << 40;
    const int64_t trained = model.config().n_context_train;
    if (params.n_context > trained) {
        log.warning("a context of {} tokens is longer than the {} the model was trained for",
                    params.n_context, trained);
    }
    const bool is_given = params.n_kv_tokens != 0;
    if (is_given && (params.n_kv_tokens < 1 || params.n_kv_tokens > k_limit))
        fail(Status::invalid, "a KV cache of {} tokens is not possible: at least 1, at most {}",
             params.n_kv_tokens, k_limit);
    const backend::KvLayout layout = kv_layout(model.config(), params.k_format, params.v_format);
    const int64_t n_rows =
        params.n_batch != 0 ? params.n_batch : std::max(model.prompt_rows(), params.n_requests);
    if (!is_given && layout.page_bytes() > 0)  // 0: heads do not fill the format, which the pool refuses
        return engine_sizes(model, layout,
                            {.n_context = params.n_context,
                             .longest = trained,
                             .n_requests = params.n_requests,
                             .fewer_requests = params.fewer_requests,
                             .n_rows = n_rows,
                             .fewer_rows = params.n_batch == 0},
                            k_draft_rows);
    const int64_t n_tokens = kv::page_count(is_given ? params.n_kv_tokens : trained) * k_kv_page_tokens;
    const int64_t n_context = params.n_context != 0 ? params.n_context : trained;
    return {std::min(n_tokens, n_context), n_tokens, params.n_requests, n_rows};
}

EngineParams checked(EngineParams params, const model::Model& model) {
    constexpr int64_t k_max = runtime::k_max_step_rows;
    if (params.n_requests < 1 || params.n_requests > k_max)
        fail(Status::invalid, "n_requests is {}; 1 to {} are possible", params.n_requests, k_max);
    if (params.n_batch != 0 && (params.n_batch < params.n_requests || params.n_batch > k_max)) {
        fail(Status::invalid, "n_batch is {}; {} (n_requests) to {} are possible", params.n_batch,
             params.n_requests, k_max);
    }
    const int64_t most_rows =
        params.n_batch != 0 ? params.n_batch : std::max(model.prompt_rows(), params.n_requests);
    if (params.n_prompt_rows < 0 || params.n_prompt_rows > most_rows)
        fail(Status::invalid, "n_prompt_rows is {}; 0 to {} are possible", params.n_prompt_rows, most_rows);
    constexpr int64_t k_longest_context = int64_t{1} << 31;
    if (params.n_context < 0 || params.n_context > k_longest_context)
        fail(Status::invalid, "a context of {} tokens is not possible", params.n_context);
    return params;
}

EngineParams with_sizes(EngineParams params, const kv::EngineSizes& sizes) {
    params.n_requests = sizes.n_requests;
    params.n_batch = sizes.n_rows;
    params.n_context = sizes.n_context;
    params.n_kv_tokens = sizes.n_kv_tokens;
    if (params.n_prompt_rows == 0) params.n_prompt_rows = std::max<int64_t>(params.n_batch / 4, 1);
    params.n_prompt_rows = std::min(params.n_prompt_rows, params.n_batch);
    return params;
}

// Says what host memory pages of the prefix cache may take, or why they take none.
void log_host_cache(const EngineParams& params, const kv::HostLimit& limit, int64_t page_bytes,
                    const Logger& log) {
    const uint64_t available = available_memory_bytes();
    if (!params.keep_prefixes) {
        log.warning("host_cache_bytes has no effect: the engine keeps no prefixes");
    } else if (limit.bytes < static_cast<uint64_t>(page_bytes)) {
        log.warning("host_cache_bytes has no effect: {} bytes are less than a page of the KV cache, {} bytes",
                    limit.bytes, page_bytes);
    } else if (available < limit.least_free) {
        log.warning(
            "host memory is too short for prompt states: {} bytes are available, and {} bytes stay free",
            available, limit.least_free);
    } else {
        log.info("prompt states in host memory: at most {} bytes, as long as {} bytes stay free",
                 std::min(limit.bytes, available - limit.least_free), limit.least_free);
    }
}

// While it exists, steps leave no trace in the caches of experts.
class Uncounted {
  public:
    explicit Uncounted(std::span<const std::unique_ptr<runtime::ExpertPool>> pools) : pools_(pools) {
        count(false);
    }
    ~Uncounted() { count(true); }
    Uncounted(const Uncounted&) = delete;
    Uncounted& operator=(const Uncounted&) = delete;

  private:
    void count(bool counts) const noexcept {
        for (const auto& pool : pools_)
            if (pool != nullptr) pool->count_uses(counts);
    }

    const std::span<const std::unique_ptr<runtime::ExpertPool>> pools_;
};

std::string text_of(const model::Model& model, const EngineParams& params) {
    const backend::KvLayout layout = kv_layout(model.config(), params.k_format, params.v_format);
    if (layout.page_bytes() <= 0) return {};
    return sizes_text(model, layout,
                      {params.n_context, params.n_kv_tokens, params.n_requests, params.n_batch});
}

}  // namespace

Engine::Engine(std::shared_ptr<const model::Model> model, const EngineParams& params, const Logger& log)
    : model_(std::move(model)),
      params_(with_sizes(params, sizes_of(*model_, checked(params, *model_), log))),
      sizes_text_(text_of(*model_, params_)),
      log_(log),
      pool_(make_pool(*model_, params_.k_format, params_.v_format)),
      scheduler_(model_, params_.n_batch, params_.n_context,
                 std::min(params_.n_batch, params_.n_requests + k_draft_rows)),
      planner_(model_->text(), params_, pool_, lists_, scheduler_,
               host_limit(*model_, params_.host_cache_bytes)) {
    state_.n_pages = kv::page_count(params_.n_kv_tokens);
    pool_->keep_pages(state_.n_pages);
    if (params_.host_cache_bytes > 0)
        log_host_cache(params_, planner_.prefixes().host_limit(), pool_->layout().page_bytes(), log_);
    if (params_.warm_up) warm_up();
    log_.info("{}", sizes_text_);
    thread_ = start_thread("minim-engine", "the engine's thread", [this] {
        run();
        if (!free_itself_) return;
        thread_.detach();
        std::exchange(free_itself_, {})();
    });
}

Engine::~Engine() {
    stop();
    if (thread_.joinable()) thread_.join();
}

void Engine::stop() {
    {
        const std::lock_guard lock(mutex_);
        stopping_.trigger();
    }
    changed_.notify_all();
}

bool Engine::free_after_callback(std::function<void()> free_itself) {
    if (std::this_thread::get_id() != thread_.get_id()) return false;
    free_itself_ = std::move(free_itself);
    stop();
    return true;
}

// Computes a step of a prompt and a step of an answer. All rows have one token, so that they read the weights of one token and
// not those of every expert.
void Engine::warm_up() {
    const bool is_mapped = std::ranges::any_of(model_->weight_bytes(), &weights::WeightBytes::is_mapped);
    if (is_mapped && model_->placement().stages().front().is_on_host()) {
        log_.info("no warm-up: layers are computed from mapped files, which it would read from the disk");
        return;
    }
    const int64_t n_rows = std::min({k_first_prompt_rows, params_.n_batch, params_.n_context - 1});
    if (n_rows < 1) return;
    const Uncounted uncounted(model_->expert_pools());
    Sequence sequence;
    sequence.tokens.assign(n_rows + 1, 0);
    sequence.kv.emplace(kv::Sequence::unreserved(pool_, n_rows + 1));
    if (!sequence.kv->try_hold(0, n_rows + 1)) return;
    for (const int64_t n : {n_rows, int64_t{1}}) {
        scheduler_.begin();
        scheduler_.add_chunk(sequence, n, sequence.n_evaluated + n - 1);
        scheduler_.run(nullptr);
    }
}

void Engine::check_length(uint64_t n_tokens) const {
    if (n_tokens < static_cast<uint64_t>(params_.n_context)) return;
    ErrorFacts facts;
    facts.requested = static_cast<int64_t>(std::min<uint64_t>(n_tokens, INT64_MAX));
    facts.available = params_.n_context - 1;
    throw Error(Status::context_full, Reason::none,
                format_text("a prompt of {} tokens does not fit into a context of {} with an answer",
                            n_tokens, params_.n_context),
                facts);
}

std::vector<std::shared_ptr<Request>> Engine::submit(std::vector<int32_t> prompt, RequestParams params,
                                                     int64_t n_answers) {
    home_.require("the engine");
    if (prompt.empty()) fail(Status::invalid, "the prompt is empty");
    check_length(prompt.size());
    check_ids(prompt, model_->config());
    if (params.timeout_ms < 0) fail(Status::invalid, "a timeout of {} ms", params.timeout_ms);
    params.generate.sampling.seed = Answer(model_->text(), params.generate).seed();  // checks the parameters
    params.generate.has_seed = true;
    std::vector<std::shared_ptr<Request>> requests;
    WorkList works;
    for (int64_t i = 0; i < n_answers; ++i) {
        requests.push_back(std::make_shared<Request>(prompt, params));
        works.push_back(std::make_unique<Work>(requests.back()));
        ++params.generate.sampling.seed;
    }
    {
        const std::lock_guard lock(mutex_);
        if (is_draining_) fail(Status::invalid, "the engine takes no more requests");
        for (const auto& work : works) work->order = n_submitted_++;
        submitted_.splice(submitted_.end(), works);
        state_.n_waiting += n_answers;
        is_idle_ = false;
    }
    changed_.notify_all();
    return requests;
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
    run_between_steps([&] { planner_.prefixes().save(path, model_->fingerprint(), cancel); });
}

int64_t Engine::load_prefixes(const std::string& path, const CancelToken* cancel) {
    int64_t n_pages = 0;
    run_between_steps([&] { n_pages = planner_.prefixes().load(path, model_->fingerprint(), cancel); });
    return n_pages;
}

int64_t Engine::save_prefix(std::vector<int32_t> tokens, const std::string& path, const CancelToken* cancel) {
    int64_t n_saved = 0;
    run_between_steps(
        [&] { n_saved = planner_.prefixes().save(tokens, path, model_->fingerprint(), cancel); });
    return n_saved;
}

std::vector<int32_t> Engine::load_prefix(const std::string& path, const CancelToken* cancel) {
    std::vector<int32_t> tokens;
    run_between_steps([&] { tokens = planner_.prefixes().load_one(path, model_->fingerprint(), cancel); });
    return tokens;
}

int64_t Engine::erase_prefix(std::vector<int32_t> tokens) {
    int64_t n_erased = 0;
    run_between_steps([&] { n_erased = planner_.prefixes().erase(tokens); });
    return n_erased;
}

// Runs a task on the engine's thread; rethrows its exceptions here.
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
        } catch (...) {
            const Error error = current_error();
            if (error.status() != Status::cancelled) fail_running(error);  // else the engine ends
        }
        lists_.remove_ended();
    }
    for (WorkList* list : {&lists_.running, &lists_.waiting})
        for (const auto& work : *list) end(*work, Finish::stopped, std::nullopt);
}

// The mutex is locked.
void Engine::publish_state() {
    const auto n_left = [](const WorkList& list) {
        return std::ranges::count_if(list, [](const auto& work) { return !work->ended; });
    };
    const kv::PoolState pool = pool_->state();
    counts_.n_waiting = n_left(lists_.waiting) + static_cast<int64_t>(submitted_.size());
    counts_.n_preempted = planner_.n_preempted();
    counts_.n_running = n_left(lists_.running);
    counts_.n_pages = pool.n_pages;
    counts_.n_pages_held = pool.n_in_use;
    const kv::PrefixCache& prefixes = planner_.prefixes();
    counts_.n_pages_cached = prefixes.n_pages();
    counts_.host_cache_bytes = prefixes.host_bytes();
    counts_.n_host_pages = prefixes.n_host_pages();
    counts_.n_host_stored = prefixes.n_stored();
    counts_.n_host_restored = prefixes.n_restored();
    state_ = counts_;
}

// Takes new requests. Returns false if the engine must end.
bool Engine::wait_for_work() {
    std::unique_lock lock(mutex_);
    const auto has_work = [&] {
        return !submitted_.empty() || !lists_.waiting.empty() || !lists_.running.empty() || !tasks_.empty();
    };
    publish_state();
    is_idle_ = submitted_.empty() && lists_.waiting.empty() && lists_.running.empty();
    if (is_idle_) changed_.notify_all();  // wakes drain()
    changed_.wait(lock, [&] { return has_work() || stopping_.triggered(); });
    lists_.add(submitted_);
    return !stopping_.triggered();
}

void Engine::make_step() {
    end_unwanted(nullptr);
    lists_.remove_ended();
    planner_.admit();
    for (const auto& work : lists_.running)
        if (work->failure) end(*work, Finish::stopped, work->failure);
    lists_.remove_ended();
    {
        const std::lock_guard lock(mutex_);
        publish_state();
    }
    planner_.plan();
    if (scheduler_.n_planned() == 0) return;
    run_step();
    planner_.keep_prompts();
    for (const auto& work : lists_.running) {
        if (work->sequence.n_rows == 0) continue;
        if (work->is_scoring()) score_prompt(*work);
        if (work->ended) continue;
        if (work->sequence.logits_row) {
            choose(*work);
        } else {
            report_progress(*work);
        }
    }
}

// Throws cancelled if the step was ended early: its tokens are evaluated again if they are still needed.
void Engine::run_step() {
    is_preempted_ = false;
    is_step_over_ = false;
    longest_wait_ = {};
    last_look_ = Clock::now();
    is_in_step_ = true;
    try {
        scheduler_.run(&step_end_);
    } catch (...) {
        is_in_step_ = false;
        lists_.remove_ended();
        if (is_preempted_) planner_.shorten_steps();
        throw;
    }
    is_in_step_ = false;
    lists_.remove_ended();  // and frees the pages that the step wrote to
    planner_.follow_step_time(std::max(longest_wait_, Clock::now() - last_look_));
    ++counts_.n_steps;
    counts_.n_rows += scheduler_.n_planned();
}

// Returns whether the step's result is no longer needed, or a request of higher priority is waiting. Called between
// layers of a step, on the engine's thread and on the one that computes the host's experts. Once it has returned true,
// it returns true until the step has ended: the threads must not come to different answers.
bool Engine::is_step_unwanted() noexcept {
    const std::lock_guard looking(look_mutex_);
    const Clock::time_point now = Clock::now();
    longest_wait_ = std::max(longest_wait_, now - last_look_);
    last_look_ = now;
    if (!is_step_over_) is_step_over_ = stopping_.triggered() || look_at_requests();
    return is_step_over_;
}

// Takes new requests, and ends those that were cancelled or have timed out. Returns whether the step is unwanted for its
// requests or for the new ones.
bool Engine::look_at_requests() noexcept {
    const auto is_wanted = [&](const auto& work) {
        return work->sequence.n_rows > 0 && !work->ended && !has_run_out(*work);
    };
    const auto first = std::ranges::find_if(lists_.running, is_wanted);
    if (first == lists_.running.end()) return true;
    {
        const std::lock_guard lock(mutex_);
        const auto is_urgent = [&](const auto& work) { return work->priority() > (*first)->priority(); };
        is_preempted_ = std::ranges::any_of(submitted_, is_urgent);
        lists_.add(submitted_);
    }
    if (!is_preempted_) end_unwanted(first->get());
    return is_preempted_;
}

bool Engine::has_run_out(const Work& work) const {
    const int64_t timeout = work.request->params().timeout_ms;
    const bool is_late = timeout > 0 && Clock::now() - work.submitted >= std::chrono::milliseconds(timeout);
    return is_late || work.request->is_cancelled();
}

// Ends requests that were cancelled or have timed out. One may be spared: while a step uses pages of ended requests,
// its own request counts as running.
void Engine::end_unwanted(const Work* spared) {
    for (WorkList* list : {&lists_.waiting, &lists_.running}) {
        for (const auto& work : *list) {
            if (work.get() == spared || !has_run_out(*work)) continue;
            end(*work, work->request->is_cancelled() ? Finish::stopped : Finish::timeout, std::nullopt);
        }
    }
}

void Engine::report_progress(Work& work) {
    std::vector<TokenEvent> no_events;
    work.state.n_prompt_done = std::min(work.sequence.n_evaluated, work.state.n_prompt);
    work.request->report(no_events, work.state);
}

// Reports the log-probabilities of the prompt tokens that follow those of the step. Leaves the last row of logits to choose() if the
// prompt ends there.
void Engine::score_prompt(Work& work) {
    Sequence& sequence = work.sequence;
    if (!sequence.logits_row) return;
    try {
        const auto n_top = static_cast<int32_t>(work.request->params().generate.n_prompt_logprobs);
        const int64_t end = std::min(sequence.n_evaluated, work.state.n_prompt - 1);
        int64_t row = *sequence.logits_row;
        std::vector<TokenEvent> events;
        for (; work.n_scored < end; ++work.n_scored, ++row) {
            const std::span<const float> logits = scheduler_.logits(row);
            const sampling::LogNormaliser normaliser = sampling::log_normaliser(logits);
            TokenEvent& event = events.emplace_back();
            event.choice.token = sequence.tokens[work.n_scored + 1];
            event.choice.logprob = normaliser.logprob(logits[event.choice.token]);
            event.choice.top = sampling::top_logprobs(logits, normaliser, n_top);
            event.prompt_rank = sampling::rank_of(logits, event.choice.token);
        }
        sequence.logits_row.reset();
        if (sequence.n_due() == 0) sequence.logits_row = row;
        work.state.n_prompt_done = sequence.n_evaluated;
        work.request->report(events, work.state);
    } catch (...) {
        end(work, Finish::stopped, current_error());
    }
}

void Engine::choose(Work& work) {
    work.state.n_prompt_done = work.state.n_prompt;
    const Clock::time_point now = Clock::now();
    if (work.state.prompt_us == 0) {
        work.first_token = now;
        work.state.prompt_us = std::max<int64_t>(microseconds(now - work.submitted) - work.state.queue_us, 1);
    }
    work.state.generate_us = microseconds(now - work.first_token);
    try {
        scheduler_.choose(work.sequence);
        if (!work.answer->has_ended() && work.sequence.n_tokens() >= params_.n_context)
            work.answer->finish(Finish::context_full);
        std::vector<TokenEvent> events;
        while (auto event = work.answer->take_event()) events.push_back(std::move(*event));
        work.state.n_generated = work.answer->n_reported();
        work.state.n_reasoning = work.answer->n_reasoning();
        work.state.n_drafted = work.answer->n_drafted();
        work.state.n_drafts_accepted = work.answer->n_drafts_accepted();
        work.request->report(events, work.state);
    } catch (...) {
        return end(work, Finish::stopped, current_error());
    }
    if (work.answer->has_ended()) end(work, work.answer->reported_finish(), std::nullopt);
}

void Engine::end(Work& work, Finish why, const std::optional<Error>& error) {
    if (work.ended) return;
    work.ended = true;
    work.state.finish = why;
    if (why == Finish::end) {
        work.state.stop_token = work.answer->end_token();
        work.state.stop_logprob = work.answer->end_logprob();
    }
    if (why == Finish::stop_text) work.state.stop_text = work.answer->stop_text();
    if (!error) planner_.keep_prefix(work, work.sequence.n_evaluated);
    if (!is_in_step_) work.sequence.kv.reset();  // else the step still writes to its pages
    {
        // Publish a state without the request before its end is reported.
        const std::lock_guard lock(mutex_);
        publish_state();
    }
    work.request->end(work.state, error);
}

// Fails all running requests after a failed step: the contents of their pages are unknown.
void Engine::fail_running(const Error& error) noexcept {
    try {
        log_.write(LogLevel::error, "a step of {} requests failed: {}", lists_.running.size(), error.what());
    } catch (...) {
        // Out of memory, or an exception of the host's logger. The requests report the error too.
    }
    for (const auto& work : lists_.running) end(*work, Finish::stopped, error);
}

}  // namespace minim::engine
