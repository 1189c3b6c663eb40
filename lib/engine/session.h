// One conversation's state: its tokens and their keys and values. A session belongs to one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "base/cancel.h"
#include "base/log.h"
#include "base/shortlist.h"
#include "kv/sequence.h"
#include "model/model.h"

namespace minim::engine {

struct SessionParams {
    int64_t n_context = 0;           // 0: the length the model was trained for, or that of the state file
    std::optional<Format> k_format;  // none: F16, or what the state file holds
    std::optional<Format> v_format;
    int64_t n_batch = 2048;
    int64_t n_ubatch = 512;  // rows of one step; changes speed and work space, never results
};

// The formats' default is F16.
backend::KvLayout kv_layout(const model::Config& config, std::optional<Format> k_format,
                            std::optional<Format> v_format);

// Keys and values lie where the layers do.
std::shared_ptr<kv::PagePool> make_pool(const model::Model& model, std::optional<Format> k_format,
                                        std::optional<Format> v_format);

// Throws invalid, naming the first id that is no token of the model and its place.
void check_ids(std::span<const int32_t> ids, const model::Config& config);

class Session {
  public:
    // Takes all memory the context can need. Throws invalid or out_of_memory.
    Session(std::shared_ptr<const model::Model> model, const SessionParams& params, const Logger& log);
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;

    const model::Model& model() const noexcept { return *model_; }
    int64_t n_context() const noexcept { return n_context_; }
    uint64_t kv_bytes() const { return kv::bytes_for(kv_.layout(), n_context_); }  // of the whole context

    // All tokens, of which the last may not be evaluated yet: a generated token is evaluated when its
    // successor is asked for.
    std::span<const int32_t> tokens() const noexcept { return tokens_; }
    int64_t n_tokens() const noexcept { return static_cast<int64_t>(tokens_.size()); }

    // Appends and evaluates `ids`. `logits` is empty, or holds [ids.size(), n_vocab] with all_logits, else
    // [1, n_vocab]. Throws invalid, context_full or cancelled with the session as it was; `logits` is then
    // unspecified.
    void eval(std::span<const int32_t> ids, bool all_logits, std::span<float> logits,
              const CancelToken* cancel);

    // What eval() checks before it begins, as if the last n_forgotten tokens were not there.
    void check_eval(std::span<const int32_t> ids, bool all_logits, std::span<const float> logits,
                    int64_t n_forgotten) const;

    // Appends a token without evaluating it. There must be room for it.
    void append(int32_t token);

    // Evaluates the last token where that is still due. Throws invalid for an empty session.
    void eval_last(const CancelToken* cancel);

    // The logits after the last token, which is evaluated first likewise.
    std::span<const float> last_logits(const CancelToken* cancel);

    // The top of the same logits, likewise, until the session is used again. None where it is not to be had: then
    // nothing has been evaluated.
    std::optional<Shortlist> shortlist(const ShortlistQuery& query, const CancelToken* cancel);

    // Evaluates the last token, which waits for it, and a guess of those that follow it: at most n_ubatch -
    // 1, and no more than the context takes. `query` is asked of each row; the row itself is written to `logits`,
    // [1 + guess.size(), n_vocab], as if each had been evaluated by itself, where it has no candidates or tops are not to
    // be had. The guess is no part of the session until keep_guess().
    void eval_guess(std::span<const int32_t> guess, const ShortlistQuery& query, std::span<float> logits,
                    const CancelToken* cancel);

    // A row of the guess just evaluated.
    std::optional<Shortlist> guess_shortlist(int64_t row) const;
    std::span<const float> guess_logits(int64_t row, std::span<float> logits);

    // Appends the first `count` tokens of the guess just evaluated.
    void keep_guess(std::span<const int32_t> guess, int64_t count, std::span<const float> logits);

    // Whether the last token waits for its evaluation.
    bool has_waiting_token() const noexcept { return n_evaluated_ < n_tokens(); }
    int64_t n_ubatch() const noexcept { return space_.n_rows(); }

    // Forgets the tokens from position `count` on.
    void truncate(int64_t count);

    // A session with the same tokens, which shares the keys and values of whole pages. Each goes on by
    // itself, on any thread. Takes memory for the rest of the context; throws out_of_memory.
    std::unique_ptr<Session> fork();

    // Writes the first n_saved tokens with their keys and values, and the logits where these are all, to a
    // file, which gets its name when it is whole. Throws as kv::write_state.
    void save(const std::string& path, int64_t n_saved, const CancelToken* cancel);

    // A session as it was saved by the same model. Throws as kv::StateFile and the constructor; format where
    // the file is another model's; invalid where its tokens do not fit into the context asked for, or its
    // keys and values are of other formats than those asked for.
    static std::unique_ptr<Session> restore(std::shared_ptr<const model::Model> model,
                                            const std::string& path, const SessionParams& params,
                                            const CancelToken* cancel, const Logger& log);

  private:
    Session(const Session& parent, kv::Sequence kv);
    void check(std::span<const int32_t> ids, int64_t n_forgotten) const;
    int64_t n_evaluated_of(int64_t count) const noexcept;
    void run_step(std::span<const int32_t> tokens, int64_t position, int64_t first_wanted,
                  const model::StepOutput& output, const CancelToken* cancel);
    void eval_waiting(const model::StepOutput& output, const CancelToken* cancel);
    void fetch_last_logits();

    std::shared_ptr<const model::Model> model_;
    int64_t n_context_;
    model::StepSpace space_;  // before the cache, whose error names the context that still fits
    kv::Sequence kv_;
    std::vector<model::StepRow> rows_;  // [n_ubatch]
    Buffer last_logits_;                // [n_vocab], valid while every token is evaluated
    std::optional<int64_t> kept_row_;   // of the last step, where these are still on the device
    bool guess_has_shortlists_ = false;
    std::vector<int32_t> tokens_;  // capacity n_context: never grows later
    int64_t n_evaluated_ = 0;      // n_tokens() or one less
};

}  // namespace minim::engine
