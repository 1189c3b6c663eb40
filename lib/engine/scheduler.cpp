// SPDX-License-Identifier: Apache-2.0
#include "engine/scheduler.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "engine/bad_logits.h"

namespace minim::engine {

using Clock = std::chrono::steady_clock;

Scheduler::Scheduler(std::shared_ptr<const model::Model> model, int64_t n_rows, int64_t n_context,
                     int64_t n_logits_rows)
    : model_(std::move(model)), n_context_(n_context), space_(model_->forward(), n_rows, n_context) {
    reserve_logits(n_logits_rows);
    rows_.reserve(n_rows);
}

void Scheduler::reserve_logits(int64_t n) {
    if (n <= std::ssize(places_)) return;
    Buffer logits(static_cast<uint64_t>(n * model_->config().n_vocab) * sizeof(float), "logits");
    std::copy_n(logits_.data(), logits_.size(), logits.data());
    places_.resize(n);
    logits_ = std::move(logits);
}

void Scheduler::observe(std::shared_ptr<runtime::ObservedInputs> inputs) {
    if (inputs == nullptr) return inputs_.reset();
    model_->forward().refuse_observing();
    inputs_.emplace(std::move(inputs));
}

void Scheduler::begin() {
    rows_.clear();
    planned_.clear();
    n_logits_planned_ = 0;
}

void Scheduler::add_answers(std::span<Sequence* const> sequences, int64_t n_drafts) {
    auto n_left = std::ssize(sequences);  // sequences without a draft so far
    for (Sequence* sequence : sequences) {
        const int64_t share = (n_drafts + n_left - 1) / n_left;
        --n_left;
        const int64_t room = std::min(share, n_context_ - sequence->n_tokens() - 1);
        const auto draft = sequence->answer->drafter().draft(sequence->tokens, room);
        const bool has_pages =
            sequence->kv->try_hold(sequence->n_evaluated, sequence->n_tokens() + std::ssize(draft));
        sequence->draft.assign(draft.begin(), has_pages ? draft.end() : draft.begin());
        n_drafts -= std::ssize(sequence->draft);
        add(*sequence, 1, sequence->n_evaluated);
    }
}

void Scheduler::add_chunk(Sequence& sequence, int64_t n_rows, int64_t first_wanted) {
    sequence.draft.clear();
    add(sequence, n_rows, first_wanted);
}

void Scheduler::add(Sequence& sequence, int64_t n_rows, int64_t first_wanted) {
    sequence.n_rows = n_rows;
    sequence.logits_row.reset();
    const int64_t n_logits_before = n_logits_planned_;
    planned_.push_back(&sequence);
    const auto add_row = [&](int32_t token, int64_t position) {
        const bool is_wanted = position >= first_wanted;
        rows_.push_back({token, {&sequence.kv->view(), position}, is_wanted});
        if (is_wanted && !sequence.logits_row) sequence.logits_row = n_logits_planned_;
        if (is_wanted) ++n_logits_planned_;
    };
    const int64_t end = sequence.n_evaluated + n_rows;
    for (int64_t i = sequence.n_evaluated; i < end; ++i) add_row(sequence.tokens[i], i);
    for (size_t i = 0; i < sequence.draft.size(); ++i)
        add_row(sequence.draft[i], end + static_cast<int64_t>(i));
    sequence.n_logits_rows = n_logits_planned_ - n_logits_before;
}

// Requests top-k of each row from the device, if that is enough to choose from.
void Scheduler::ask_for_tops() {
    queries_.clear();
    if (!space_.keeps_logits()) return;
    for (const Sequence* sequence : planned_) {
        if (!sequence->logits_row) continue;
        if (sequence->answer == nullptr) return;
        // The rows of a prompt whose log-probabilities are asked for come whole.
        const bool is_answer = sequence->n_logits_rows == std::ssize(sequence->draft) + 1;
        queries_.insert(queries_.end(), sequence->n_logits_rows,
                        is_answer ? sequence->answer->query(sequence->draft) : TopKQuery{});
    }
    const auto is_row = [](const TopKQuery& query) { return query.n_candidates == 0; };
    if (std::ranges::all_of(queries_, is_row)) queries_.clear();
}

void Scheduler::run(const CancelToken* cancel, float* logits) {
    ask_for_tops();
    const bool has_answers =
        std::ranges::any_of(planned_, [](const Sequence* sequence) { return sequence->answer != nullptr; });
    const bool stay_on_device = logits == nullptr && space_.keeps_logits() && !has_answers;
    float* host_logits = logits != nullptr ? logits : logits_.as<float>();
    const Clock::time_point start = Clock::now();
    model_->forward().step(rows_, space_, {stay_on_device ? nullptr : host_logits, queries_}, cancel, {},
                           inputs_ ? &*inputs_ : nullptr);
    seconds_a_row_ =
        std::chrono::duration<double>(Clock::now() - start).count() / static_cast<double>(n_planned());
    const auto n_vocab = static_cast<size_t>(model_->config().n_vocab);
    for (int64_t row = 0; logits != nullptr && row < n_logits_planned_; ++row)
        check_row({logits + static_cast<size_t>(row) * n_vocab, n_vocab}, row);
    for (Sequence* sequence : planned_) sequence->n_evaluated += sequence->n_rows;
    for (int64_t row = 0; logits == nullptr && row < n_logits_planned_; ++row) {
        const auto i = static_cast<size_t>(row);
        const bool has_top = !queries_.empty() && queries_[i].n_candidates > 0;
        places_[i] = has_top ? Place::with_top : stay_on_device ? Place::device : Place::host;
    }
}

void Scheduler::choose(Sequence& sequence) {
    Answer& answer = *sequence.answer;
    const std::vector<int32_t> draft = std::exchange(sequence.draft, {});
    const bool is_step = std::exchange(sequence.n_rows, 0) == 1;  // and not the end of a prompt
    const int64_t n_before = answer.n_chosen();
    int64_t n_right = 0;
    while (!answer.has_ended()) {
        const auto token = answer.choose(logits_of(*sequence.logits_row, answer));
        if (!token) break;
        sequence.tokens.push_back(*token);
        if (n_right == std::ssize(draft) || *token != draft[n_right]) break;
        ++n_right;
        if (answer.has_ended()) break;
        ++sequence.n_evaluated;
        ++*sequence.logits_row;
    }
    // The top-k suits only this answer: another answer would need another top-k of the row.
    Place& place = places_[*sequence.logits_row];
    if (place == Place::with_top) place = Place::device;
    answer.count_draft(std::ssize(draft), n_right);
    // The cost of the tokens: the share of the step that the answer's rows take.
    const double seconds = seconds_a_row_ * static_cast<double>(draft.size() + 1);
    if (is_step) answer.drafter().learn(std::ssize(draft), answer.n_chosen() - n_before, seconds);
}

std::span<float> Scheduler::host_row(int64_t row) const {
    const auto n_vocab = static_cast<size_t>(model_->config().n_vocab);
    return {logits_.as<float>() + static_cast<size_t>(row) * n_vocab, n_vocab};
}

std::span<const float> Scheduler::logits(int64_t row) {
    Place& place = places_[row];
    if (place != Place::host) model_->forward().fetch_logits(space_, row, host_row(row).data());
    place = Place::host;
    check_row(host_row(row), row);
    return host_row(row);
}

// Throws format, with the tensor at fault, if the logits of a row are not finite.
void Scheduler::check_row(std::span<const float> logits, int64_t row) const {
    if (!has_bad_logits(logits)) return;
    std::span<const int32_t> tokens;  // of the sequence that the row belongs to
    for (const Sequence* sequence : planned_)
        if (sequence->logits_row && *sequence->logits_row <= row) tokens = sequence->tokens;
    fail_bad_logits(*model_, tokens);
}

std::span<float> Scheduler::put_logits(int64_t row) {
    places_[row] = Place::host;
    return host_row(row);
}

LogitsRow Scheduler::logits_of(int64_t row, const Answer& answer) {
    LogitsRow logits_row;
    logits_row.whole = [this, row] { return logits(row); };
    const Place place = places_[row];
    if (place == Place::with_top) logits_row.top = space_.top_k(row);
    if (place == Place::device) {
        const TopKQuery query = answer.query();
        if (query.n_candidates > 0) logits_row.top = model_->forward().top_k(space_, row, query);
    }
    const auto& top = logits_row.top;
    if (top && (top->n_nan > 0 || (!top->candidates.empty() && std::isinf(top->candidates[0].logit))))
        logits(row);  // throws
    return logits_row;
}

}  // namespace minim::engine
