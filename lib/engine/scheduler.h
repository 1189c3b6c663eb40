// SPDX-License-Identifier: Apache-2.0
// Steps over sequences: a scheduler plans which tokens a forward pass evaluates, draft tokens among them, runs it, and
// lets the answers choose their next tokens from its logits. A session is a scheduler of one sequence; an engine
// decides which of many sequences a step takes, and how much of their prompts.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/buffer.h"
#include "base/cancel.h"
#include "base/top_k.h"
#include "engine/answer.h"
#include "kv/sequence.h"
#include "model/model.h"
#include "runtime/forward_pass.h"
#include "runtime/step_space.h"

namespace minim::engine {

// A sequence of tokens that steps evaluate.
struct Sequence {
    std::vector<int32_t> tokens;
    std::optional<kv::Sequence> kv;  // none: it waits for pages
    int64_t n_evaluated = 0;         // tokens that are in the KV cache
    Answer* answer = nullptr;        // chooses the next tokens, with its sampler and constraint; may be null

    // The last step that was planned for it.
    int64_t n_rows = 0;                 // tokens evaluated, without the draft
    std::vector<int32_t> draft;         // draft tokens, evaluated after the last token
    std::optional<int64_t> logits_row;  // row of the logits after the first token that wants them
    int64_t n_logits_rows = 0;          // rows of logits, one after another

    int64_t n_tokens() const noexcept { return std::ssize(tokens); }
    int64_t n_due() const noexcept { return n_tokens() - n_evaluated; }
};

// One thread at a time.
class Scheduler {
  public:
    // Steps have at most n_rows rows, of which n_logits_rows keep logits. No sequence is longer than n_context.
    // Throws out_of_memory or out_of_device_memory.
    Scheduler(std::shared_ptr<const model::Model> model, int64_t n_rows, int64_t n_context,
              int64_t n_logits_rows);

    int64_t n_rows() const noexcept { return space_.n_rows(); }
    int64_t n_logits_rows() const noexcept { return std::ssize(places_); }
    int64_t n_planned() const noexcept { return std::ssize(rows_); }

    // Keeps the logits of at least n rows from now on. Throws out_of_memory.
    void reserve_logits(int64_t n);

    // Shows the inputs of matrices of later steps to an observer; null: to none. Throws as ForwardPass::refuse_observing().
    void observe(std::shared_ptr<runtime::ObservedInputs> inputs);

    // Starts the plan of a step.
    void begin();

    // Plans the next token of each sequence, which must own its page, and at most n_drafts draft tokens after these.
    // A sequence gets an equal share of them, if its context and the pool have room.
    void add_answers(std::span<Sequence* const> sequences, int64_t n_drafts);

    // Plans the next n_rows tokens of a sequence, which must own their pages. Tokens from position first_wanted on
    // get logits.
    void add_chunk(Sequence& sequence, int64_t n_rows, int64_t first_wanted);

    // Runs the planned step. Rows of logits are written to `logits` if it is not null, else they are available from
    // logits(). Throws as ForwardPass::step, and format for written logits that are not finite; the sequences are then unchanged.
    void run(const CancelToken* cancel, float* logits = nullptr);

    // Lets the answer of a sequence choose the token after its logits_row, which must be that of its last token, and a further
    // token after each draft token that it agrees with. Throws as Answer::choose.
    void choose(Sequence& sequence);

    // Return a row of logits, [n_vocab], copied from the device first if necessary; and a row to store known logits in. logits()
    // throws format if they are not finite.
    std::span<const float> logits(int64_t row);
    std::span<float> put_logits(int64_t row);

  private:
    // The place of a row of logits; with_top: on the device, with the requested top-k.
    enum class Place : uint8_t { host, device, with_top };

    void add(Sequence& sequence, int64_t n_rows, int64_t first_wanted);
    void ask_for_tops();
    std::span<float> host_row(int64_t row) const;
    void check_row(std::span<const float> logits, int64_t row) const;
    LogitsRow logits_of(int64_t row, const Answer& answer);

    const std::shared_ptr<const model::Model> model_;
    const int64_t n_context_;
    runtime::StepSpace space_;
    Buffer logits_;              // [places_.size(), n_vocab]
    std::vector<Place> places_;  // of rows of logits
    std::vector<runtime::StepRow> rows_;
    std::vector<Sequence*> planned_;
    std::vector<TopKQuery> queries_;  // one per row of logits; empty: all go to the host
    int64_t n_logits_planned_ = 0;
    double seconds_a_row_ = 0.0;  // of the last step
    std::optional<runtime::InputObserver> inputs_;
};

}  // namespace minim::engine
