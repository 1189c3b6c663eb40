#include "engine/session.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/format_text.h"
#include "kv/state_file.h"

namespace minim::engine {
namespace {

int64_t context_length(const model::Model& model, const SessionParams& params, const Logger& log) {
    const int64_t trained = model.config().n_context_train;
    if (params.n_context == 0) return trained;
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

Format format_of_state(std::optional<Format> wanted, Format saved, const char* what,
                       const std::string& path) {
    if (wanted && *wanted != saved) {
        fail(Status::invalid, "{}: the {} were saved as {}, not as {}", path, what, traits(saved).name,
             traits(*wanted).name);
    }
    return saved;
}

// What was asked for, and what the file says where nothing was. Checks that the file is the model's.
SessionParams params_of_state(const model::Model& model, const kv::StateFile& file, SessionParams params) {
    const kv::State state = file.state();
    const std::string& path = file.path();
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
    const backend::KvLayout& saved = file.layout();
    const bool fits = saved.n_layer == expected.n_layer && saved.n_head_kv == expected.n_head_kv &&
                      saved.head_dim == expected.head_dim;
    const bool has_logits = state.n_evaluated == n_tokens && n_tokens > 0;
    const auto n_logits = static_cast<int64_t>(state.logits.size());
    if (!fits || n_tokens - state.n_evaluated > 1 || n_logits != (has_logits ? model.config().n_vocab : 0))
        fail_file(Reason::value, "{}: this state does not have the model's shape", path);
    const auto unknown = std::ranges::find_if(
        state.tokens, [&](int32_t id) { return id < 0 || id >= model.config().n_vocab; });
    if (unknown != state.tokens.end())
        fail_file(Reason::value, "{}: token {} of this state is none of the model's", path, *unknown);
    return params;
}

int64_t step_rows(const SessionParams& params, int64_t n_context) {
    if (params.n_batch < 1) fail(Status::invalid, "n_batch is {}", params.n_batch);
    if (params.n_ubatch < 1) fail(Status::invalid, "n_ubatch is {}", params.n_ubatch);
    return std::min({params.n_ubatch, params.n_batch, n_context, model::k_most_step_rows});
}

}  // namespace

backend::KvLayout kv_layout(const model::Config& config, std::optional<Format> k_format,
                            std::optional<Format> v_format) {
    return {config.n_layer, config.n_head_kv, config.head_dim, k_format.value_or(Format::f16),
            v_format.value_or(Format::f16)};
}

std::shared_ptr<kv::PagePool> make_pool(const model::Model& model, std::optional<Format> k_format,
                                        std::optional<Format> v_format) {
    std::vector<kv::Part> parts;
    for (const model::Stage& stage : model.stages()) parts.push_back({stage.backend, stage.n_layer});
    return std::make_shared<kv::PagePool>(kv_layout(model.config(), k_format, v_format), std::move(parts));
}

void check_ids(std::span<const int32_t> ids, const model::Config& config) {
    for (size_t i = 0; i < ids.size(); ++i) {
        if (ids[i] < 0 || ids[i] >= config.n_vocab)
            fail(Status::invalid, "token {} is {}; ids go from 0 to {}", i, ids[i], config.n_vocab - 1);
    }
}

Session::Session(std::shared_ptr<const model::Model> model, const SessionParams& params, const Logger& log)
    : model_(std::move(model)),
      n_context_(context_length(*model_, params, log)),
      space_(model_->stages(), model_->config(), step_rows(params, n_context_), n_context_),
      kv_(make_pool(*model_, params.k_format, params.v_format), n_context_),
      rows_(static_cast<size_t>(space_.n_rows())),
      last_logits_(static_cast<uint64_t>(model_->config().n_vocab) * sizeof(float), "logits") {
    tokens_.reserve(static_cast<size_t>(n_context_));
}

Session::Session(const Session& parent, kv::Sequence kv)
    : model_(parent.model_),
      n_context_(parent.n_context_),
      space_(model_->stages(), model_->config(), parent.space_.n_rows(), n_context_),
      kv_(std::move(kv)),
      rows_(parent.rows_.size()),
      last_logits_(parent.last_logits_.size(), "logits"),
      n_evaluated_(parent.n_evaluated_) {
    tokens_.reserve(static_cast<size_t>(n_context_));
    tokens_ = parent.tokens_;
    std::memcpy(last_logits_.data(), parent.last_logits_.data(), last_logits_.size());
}

std::unique_ptr<Session> Session::fork() {
    fetch_last_logits();
    return std::unique_ptr<Session>(new Session(*this, kv_.fork(n_evaluated_, n_context_)));
}

void Session::save(const std::string& path, int64_t n_saved, const CancelToken* cancel) {
    fetch_last_logits();
    kv::State state;
    state.model = model_->fingerprint();
    state.n_context = n_context_;
    state.tokens = std::span(tokens_).first(static_cast<size_t>(n_saved));
    state.n_evaluated = n_evaluated_of(n_saved);
    if (state.n_evaluated == n_saved && n_saved > 0)
        state.logits = {last_logits_.as<float>(), static_cast<size_t>(model_->config().n_vocab)};
    kv::write_state(path, state, kv_, cancel);
}

std::unique_ptr<Session> Session::restore(std::shared_ptr<const model::Model> model, const std::string& path,
                                          const SessionParams& params, const CancelToken* cancel,
                                          const Logger& log) {
    const kv::StateFile file(path);
    const kv::State state = file.state();
    const SessionParams as_saved = params_of_state(*model, file, params);
    auto session = std::make_unique<Session>(std::move(model), as_saved, log);
    file.read_pages(session->kv_, cancel);
    session->tokens_.assign(state.tokens.begin(), state.tokens.end());
    session->n_evaluated_ = state.n_evaluated;
    std::ranges::copy(state.logits, session->last_logits_.as<float>());
    return session;
}

void Session::check(std::span<const int32_t> ids, int64_t n_forgotten) const {
    const int64_t n_held = n_tokens() - n_forgotten;
    const auto n_new = static_cast<int64_t>(ids.size());
    if (n_held + n_new > n_context_) {
        ErrorFacts facts;
        facts.requested = n_new;
        facts.available = n_context_ - n_held;
        throw Error(Status::context_full, Reason::none,
                    format_text("{} tokens do not fit: the context of {} tokens holds {} already", n_new,
                                n_context_, n_held),
                    facts);
    }
    check_ids(ids, model_->config());  // no more of them than may be there
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

// Evaluates tokens from `position` on, whose pages are held; rows from first_wanted on give logits.
void Session::run_step(std::span<const int32_t> tokens, int64_t position, int64_t first_wanted,
                       const model::StepOutput& output, const CancelToken* cancel) {
    kept_row_.reset();
    for (size_t i = 0; i < tokens.size(); ++i) {
        const auto row = static_cast<int64_t>(i);
        rows_[i] = {tokens[i], {&kv_.view(), position + row}, row >= first_wanted};
    }
    model_->forward().step(std::span(rows_).first(tokens.size()), space_, output, cancel);
}

void Session::eval(std::span<const int32_t> ids, bool all_logits, std::span<float> logits,
                   const CancelToken* cancel) {
    check_eval(ids, all_logits, logits, 0);
    fetch_last_logits();  // which are still the session's should this fail
    const int64_t n_vocab = model_->config().n_vocab;
    const int64_t n_before = n_tokens();
    const int64_t n_rows = all_logits ? static_cast<int64_t>(ids.size()) : 1;

    const bool every_row = all_logits && !logits.empty();
    const bool keeps_row = logits.empty() && space_.keeps_logits();
    tokens_.insert(tokens_.end(), ids.begin(), ids.end());
    try {
        const auto n_total = n_tokens();
        kv_.hold(n_evaluated_, n_total);
        for (int64_t at = n_evaluated_; at < n_total; at += space_.n_rows()) {
            const int64_t count = std::min(space_.n_rows(), n_total - at);
            const auto chunk =
                std::span(tokens_).subspan(static_cast<size_t>(at), static_cast<size_t>(count));
            if (every_row) {
                const int64_t first =
                    std::max<int64_t>(n_before - at, 0);  // the row left from before gives none
                run_step(chunk, at, first, {logits.data() + (at + first - n_before) * n_vocab, {}}, cancel);
            } else {
                run_step(chunk, at, n_total - 1 - at, {keeps_row ? nullptr : last_logits_.as<float>(), {}},
                         cancel);
            }
        }
    } catch (...) {
        tokens_.resize(static_cast<size_t>(n_before));
        throw;
    }
    n_evaluated_ = n_tokens();
    if (keeps_row) kept_row_ = 0;
    if (every_row) {
        std::copy_n(logits.data() + (n_rows - 1) * n_vocab, n_vocab, last_logits_.as<float>());
    } else if (!logits.empty()) {
        std::copy_n(last_logits_.as<float>(), n_vocab, logits.data());
    }
}

void Session::append(int32_t token) {
    check({&token, 1}, 0);
    if (n_evaluated_ < n_tokens()) fail_internal("two tokens wait for evaluation");
    tokens_.push_back(token);
}

void Session::eval_last(const CancelToken* cancel) {
    if (tokens_.empty()) fail(Status::invalid, "the prompt is empty");
    if (!has_waiting_token()) return;
    eval_waiting({space_.keeps_logits() ? nullptr : last_logits_.as<float>(), {}}, cancel);
}

void Session::eval_waiting(const model::StepOutput& output, const CancelToken* cancel) {
    kv_.hold(n_evaluated_, n_tokens());
    run_step(std::span(tokens_).last(1), n_tokens() - 1, 0, output, cancel);
    n_evaluated_ = n_tokens();
    if (space_.keeps_logits()) kept_row_ = 0;
}

std::span<const float> Session::last_logits(const CancelToken* cancel) {
    eval_last(cancel);
    fetch_last_logits();
    return {last_logits_.as<float>(), static_cast<size_t>(model_->config().n_vocab)};
}

void Session::fetch_last_logits() {
    if (!kept_row_ || has_waiting_token()) return;
    model_->forward().fetch_logits(space_, *kept_row_, last_logits_.as<float>());
    kept_row_.reset();
}

std::optional<Shortlist> Session::shortlist(const ShortlistQuery& query, const CancelToken* cancel) {
    if (tokens_.empty()) fail(Status::invalid, "the prompt is empty");
    if (!space_.keeps_logits() || query.n_candidates == 0) return std::nullopt;
    if (has_waiting_token()) {
        eval_waiting({nullptr, {&query, 1}}, cancel);
        return space_.shortlist(0);
    }
    if (!kept_row_) return std::nullopt;
    return model_->forward().shortlist(space_, *kept_row_, query);
}

void Session::eval_guess(std::span<const int32_t> guess, const ShortlistQuery& query, std::span<float> logits,
                         const CancelToken* cancel) {
    const int64_t position = n_tokens() - 1;
    const auto n_rows = static_cast<int64_t>(guess.size()) + 1;
    if (!has_waiting_token() || n_rows > space_.n_rows() || position + n_rows > n_context_ ||
        std::ssize(logits) < n_rows * model_->config().n_vocab)
        fail_internal("a guess of {} tokens in a session of {}", guess.size(), n_tokens());
    kv_.hold(position, position + n_rows);
    std::vector<int32_t> tokens = {tokens_.back()};
    tokens.insert(tokens.end(), guess.begin(), guess.end());
    guess_has_shortlists_ = space_.keeps_logits() && query.n_candidates > 0;
    const std::vector<ShortlistQuery> queries(guess_has_shortlists_ ? tokens.size() : 0, query);
    run_step(tokens, position, 0, {logits.data(), queries}, cancel);
}

std::optional<Shortlist> Session::guess_shortlist(int64_t row) const {
    if (!guess_has_shortlists_) return std::nullopt;
    return space_.shortlist(row);
}

std::span<const float> Session::guess_logits(int64_t row, std::span<float> logits) {
    const int64_t n_vocab = model_->config().n_vocab;
    const auto one = logits.subspan(static_cast<size_t>(row * n_vocab), static_cast<size_t>(n_vocab));
    if (guess_has_shortlists_) model_->forward().fetch_logits(space_, row, one.data());
    return one;
}

void Session::keep_guess(std::span<const int32_t> guess, int64_t count, std::span<const float> logits) {
    const int64_t n_vocab = model_->config().n_vocab;
    tokens_.insert(tokens_.end(), guess.begin(), guess.begin() + count);
    n_evaluated_ = n_tokens();
    if (guess_has_shortlists_) {
        kept_row_ = count;
    } else {
        std::copy_n(logits.data() + count * n_vocab, n_vocab, last_logits_.as<float>());
    }
}

void Session::truncate(int64_t count) {
    if (count < 0 || count > n_tokens()) {
        fail(Status::invalid, "cannot truncate to {} tokens: the session holds {}", count, n_tokens());
    }
    if (count == n_tokens()) return;
    const int64_t n_evaluated = n_evaluated_of(count);
    tokens_.resize(static_cast<size_t>(count));
    kv_.truncate(count);
    n_evaluated_ = n_evaluated;
}

// Tokens that count as evaluated where only the first `count` are kept. The logits of a new last one are
// gone: it is evaluated again, so that they can be had.
int64_t Session::n_evaluated_of(int64_t count) const noexcept {
    return count == n_tokens() ? n_evaluated_ : std::min(n_evaluated_, std::max<int64_t>(count - 1, 0));
}

}  // namespace minim::engine
