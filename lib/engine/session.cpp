// SPDX-License-Identifier: Apache-2.0
#include "engine/session.h"

#include <algorithm>

#include "base/error.h"
#include "base/format_text.h"
#include "engine/open_sizes.h"
#include "model/architecture.h"
#include "model/shares.h"
#include "runtime/placement.h"
#include "runtime/step_space.h"

namespace minim::engine {
namespace {

Format format_of_state(std::optional<Format> wanted, Format saved, const char* what,
                       const std::string& path) {
    if (wanted && *wanted != saved) {
        fail(Status::invalid, "{}: the {} were saved as {}, not as {}", path, what, traits(saved).name,
             traits(*wanted).name);
    }
    return saved;
}

// Returns the requested parameters, with those of the file as defaults. Checks that the file is of the same model.
SessionParams params_of_state(const model::Model& model, const kv::StateFile& file, SessionParams params) {
    const kv::State state = file.state();
    const std::string& path = file.name();
    if (state.model != model.fingerprint())
        fail_file(Reason::value, "{}: this state was saved by another model", path);
    if (params.n_context == 0) params.n_context = state.n_context;
    const auto n_tokens = static_cast<int64_t>(state.tokens.size());
    if (n_tokens > params.n_context) {
        fail(Status::invalid, "{}: its {} tokens do not fit into a context of {}", path, n_tokens,
             params.n_context);
    }
    params.k_format = format_of_state(params.k_format, file.layout().k_format, "keys", path);
    params.v_format = format_of_state(params.v_format, file.layout().v_format, "values", path);

    const backend::KvLayout expected = kv_layout(model.config(), params.k_format, params.v_format);
    const bool has_logits = state.n_evaluated == n_tokens && n_tokens > 0;
    const auto n_logits = static_cast<int64_t>(state.logits.size());
    if (file.layout() != expected || n_tokens - state.n_evaluated > 1 ||
        n_logits != (has_logits ? model.config().n_vocab : 0))
        fail_file(Reason::value, "{}: this state does not have the model's shape", path);
    const auto unknown = std::ranges::find_if(
        state.tokens, [&](int32_t id) { return id < 0 || id >= model.config().n_vocab; });
    if (unknown != state.tokens.end())
        fail_file(Reason::value, "{}: token {} of this state is none of the model's", path, *unknown);
    return params;
}

int64_t step_rows(const model::Model& model, int64_t n_ubatch, int64_t n_context) {
    if (n_ubatch < 0) fail(Status::invalid, "n_ubatch is {}", n_ubatch);
    const int64_t n_rows = n_ubatch == 0 ? model.prompt_rows() : n_ubatch;
    return std::min({n_rows, n_context, runtime::k_max_step_rows});
}

int64_t context_length(const model::Model& model, const SessionParams& params, const Logger& log) {
    const int64_t trained = model.config().n_context_train;
    if (params.n_context == 0)
        return default_context(model, kv_layout(model.config(), params.k_format, params.v_format),
                               step_rows(model, params.n_ubatch, trained), log);
    constexpr int64_t k_limit = int64_t{1} << 31;
    if (params.n_context < 1 || params.n_context > k_limit) {
        fail(Status::invalid, "a context of {} tokens is not possible", params.n_context);
    }
    if (params.n_context > trained) {
        log.warning("a context of {} tokens is longer than the {} the model was trained for",
                    params.n_context, trained);
    }
    return params.n_context;
}

}  // namespace

backend::KvLayout kv_layout(const model::Config& config, std::optional<Format> k_format,
                            std::optional<Format> v_format) {
    return backend::kv_layout_of(model::shape_of(config), config.n_layer,
                                 k_format.value_or(backend::k_default_kv_format),
                                 v_format.value_or(backend::k_default_kv_format));
}

std::shared_ptr<kv::PagePool> make_pool(const model::Model& model, std::optional<Format> k_format,
                                        std::optional<Format> v_format) {
    const backend::KvLayout layout = kv_layout(model.config(), k_format, v_format);
    if (!model.placement().has_ranks()) {
        std::vector<kv::DeviceLayers> parts;
        for (const runtime::Stage& stage : model.placement().stages())
            parts.push_back({stage.backend, stage.n_layer});
        return std::make_shared<kv::PagePool>(layout, std::move(parts));
    }
    kv::PageParts parts;
    for (const runtime::Shard& shard : model.placement().shards())
        parts.here.push_back(model::page_part_of(shard, model.config()));
    parts.remote = model.net().leader.get();
    for (const std::vector<runtime::Shard>& process : model.net().other_shards) {
        parts.remote_parts.emplace_back();
        for (const runtime::Shard& shard : process)
            parts.remote_parts.back().push_back(model::page_part_of(shard, model.config()));
    }
    return std::make_shared<kv::PagePool>(layout, std::move(parts));
}

void check_ids(std::span<const int32_t> ids, const model::Config& config) {
    for (size_t i = 0; i < ids.size(); ++i) {
        if (ids[i] < 0 || ids[i] >= config.n_vocab)
            fail(Status::invalid, "token {} is {}; ids go from 0 to {}", i, ids[i], config.n_vocab - 1);
    }
}

Session::Session(const std::shared_ptr<const model::Model>& model, const SessionParams& params,
                 const Logger& log)
    : Session(model, context_length(*model, params, log), params.n_ubatch) {
    sequence_.kv.emplace(make_pool(*model_, params.k_format, params.v_format), n_context_);
}

// Makes a session without pages for its tokens.
Session::Session(const std::shared_ptr<const model::Model>& model, int64_t n_context, int64_t n_ubatch)
    : model_(model),
      n_context_(n_context),
      scheduler_(model, step_rows(*model, n_ubatch, n_context), n_context, 1) {
    sequence_.tokens.reserve(n_context);
}

void Session::set_state(std::span<const int32_t> tokens, int64_t n_evaluated, std::span<const float> logits) {
    sequence_.tokens.assign(tokens.begin(), tokens.end());
    sequence_.n_evaluated = n_evaluated;
    if (logits.empty()) return;
    std::ranges::copy(logits, scheduler_.put_logits(0).data());
    sequence_.logits_row = 0;
}

std::unique_ptr<Session> Session::fork() {
    const auto logits = known_logits();
    std::unique_ptr<Session> fork(new Session(model_, n_context_, scheduler_.n_rows()));
    fork->sequence_.kv.emplace(sequence_.kv->fork(sequence_.n_evaluated, n_context_));
    fork->set_state(sequence_.tokens, sequence_.n_evaluated, logits);
    return fork;
}

kv::State Session::state_of(int64_t n_saved) {
    kv::State state;
    state.model = model_->fingerprint();
    state.n_context = n_context_;
    state.tokens = tokens().first(n_saved);
    state.n_evaluated = n_evaluated_of(n_saved);
    if (n_saved == n_tokens()) state.logits = known_logits();
    return state;
}

void Session::save(const std::string& path, int64_t n_saved, const CancelToken* cancel) {
    kv::write_state(path, state_of(n_saved), *sequence_.kv, cancel);
}

void Session::save(const kv::Write& write, int64_t n_saved, const CancelToken* cancel) {
    kv::write_state(write, state_of(n_saved), *sequence_.kv, cancel);
}

uint64_t Session::saved_bytes(int64_t n_saved) {
    return kv::state_bytes(state_of(n_saved), sequence_.kv->layout());
}

std::unique_ptr<Session> Session::restore(const std::shared_ptr<const model::Model>& model,
                                          const kv::StateFile& file, const SessionParams& params,
                                          const CancelToken* cancel, const Logger& log) {
    const kv::State state = file.state();
    const SessionParams as_saved = params_of_state(*model, file, params);
    auto session = std::make_unique<Session>(model, as_saved, log);
    file.read_pages(*session->sequence_.kv, cancel);
    session->set_state(state.tokens, state.n_evaluated, state.logits);
    return session;
}

void Session::check(std::span<const int32_t> ids, int64_t n_forgotten) const {
    const int64_t n_in_use = n_tokens() - n_forgotten;
    const auto n_new = static_cast<int64_t>(ids.size());
    if (n_in_use + n_new > n_context_) {
        ErrorFacts facts;
        facts.requested = n_new;
        facts.available = n_context_ - n_in_use;
        throw Error(Status::context_full, Reason::none,
                    format_text("{} tokens do not fit: the context of {} tokens holds {} already", n_new,
                                n_context_, n_in_use),
                    facts);
    }
    check_ids(ids, model_->config());  // the check above limits their number
}

void Session::check_eval(std::span<const int32_t> ids, bool all_logits, std::span<const float> logits,
                         int64_t n_forgotten) const {
    if (ids.empty()) fail(Status::invalid, "no tokens to evaluate");
    check(ids, n_forgotten);
    const int64_t n_rows = all_logits ? static_cast<int64_t>(ids.size()) : 1;
    const int64_t n_logits = n_rows * model_->config().n_vocab;
    if (!logits.empty() && static_cast<int64_t>(logits.size()) < n_logits) {
        fail(Status::invalid, "{} logits do not fit into a buffer of {}", n_logits, logits.size());
    }
}

void Session::eval(std::span<const int32_t> ids, bool all_logits, std::span<float> logits,
                   const CancelToken* cancel) {
    check_eval(ids, all_logits, logits, 0);
    known_logits();  // keep the session's logits if this fails
    const int64_t n_before = n_tokens();
    const int64_t n_evaluated = sequence_.n_evaluated;
    const auto logits_row = sequence_.logits_row;
    const std::span<float> every_row = all_logits ? logits : std::span<float>();
    sequence_.tokens.insert(sequence_.tokens.end(), ids.begin(), ids.end());
    try {
        eval_chunks(n_before, every_row, cancel);
    } catch (...) {
        sequence_.tokens.resize(n_before);
        sequence_.n_evaluated = n_evaluated;
        sequence_.logits_row = logits_row;
        throw;
    }
    const int64_t n_vocab = model_->config().n_vocab;
    if (!every_row.empty()) {
        const float* last = logits.data() + (std::ssize(ids) - 1) * n_vocab;
        std::copy_n(last, n_vocab, scheduler_.put_logits(0).data());
        sequence_.logits_row = 0;
    } else if (!logits.empty()) {
        std::ranges::copy(known_logits(), logits.data());
    }
}

// Evaluates the tokens that are due. Logits after each token from position n_before on are written to `every_row`. If
// it is empty, the logits after the last token stay in the scheduler.
void Session::eval_chunks(int64_t n_before, std::span<float> every_row, const CancelToken* cancel) {
    sequence_.kv->hold(sequence_.n_evaluated, n_tokens());
    sequence_.answer = nullptr;
    const int64_t first_wanted = every_row.empty() ? n_tokens() - 1 : n_before;
    while (sequence_.n_due() > 0) {
        const int64_t n_given = std::max<int64_t>(sequence_.n_evaluated - n_before, 0);
        float* rows = every_row.empty() ? nullptr : every_row.data() + n_given * model_->config().n_vocab;
        scheduler_.begin();
        scheduler_.add_chunk(sequence_, std::min(scheduler_.n_rows(), sequence_.n_due()), first_wanted);
        scheduler_.run(cancel, rows);
    }
}

void Session::append(int32_t token) {
    check({&token, 1}, 0);
    if (has_waiting_token()) fail_internal("two tokens wait for evaluation");
    sequence_.tokens.push_back(token);
}

void Session::eval_last(const CancelToken* cancel) {
    if (n_tokens() == 0) fail(Status::invalid, "the prompt is empty");
    if (has_waiting_token()) eval_chunks(n_tokens(), {}, cancel);
}

std::span<const float> Session::known_logits() {
    if (has_waiting_token() || n_tokens() == 0) return {};
    return scheduler_.logits(*sequence_.logits_row);
}

void Session::reserve_drafts(int64_t n) {
    scheduler_.reserve_logits(1 + std::min(n, scheduler_.n_rows() - 1));
}

void Session::extend(Answer& answer, const CancelToken* cancel) {
    if (has_waiting_token()) {
        sequence_.kv->hold(sequence_.n_evaluated, n_tokens());
        sequence_.answer = &answer;
        scheduler_.begin();
        Sequence* const sequences[] = {&sequence_};
        scheduler_.add_answers(sequences, scheduler_.n_logits_rows() - 1);
        scheduler_.run(cancel);
    }
    sequence_.answer = &answer;
    scheduler_.choose(sequence_);
}

void Session::truncate(int64_t count) {
    if (count < 0 || count > n_tokens()) {
        fail(Status::invalid, "cannot truncate to {} tokens: the session holds {}", count, n_tokens());
    }
    if (count == n_tokens()) return;
    const int64_t n_evaluated = n_evaluated_of(count);
    sequence_.tokens.resize(count);
    sequence_.kv->truncate(count);
    sequence_.n_evaluated = n_evaluated;
}

// Returns the number of tokens that count as evaluated if only the first `count` are kept. The logits of a new last
// token are lost, so it is evaluated again.
int64_t Session::n_evaluated_of(int64_t count) const noexcept {
    return count == n_tokens() ? sequence_.n_evaluated
                               : std::min(sequence_.n_evaluated, std::max<int64_t>(count - 1, 0));
}

}  // namespace minim::engine
