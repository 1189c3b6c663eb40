// One conversation's state: its tokens and their keys and values. A session belongs to one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/buffer.h"
#include "base/cancel.h"
#include "base/log.h"
#include "kv/kv_cache.h"
#include "model/model.h"

namespace minim::engine {

struct SessionParams {
    int64_t n_context = 0;  // 0: the length the model was trained for
    Format k_format = Format::f16;
    Format v_format = Format::f16;
    int64_t n_batch = 2048;
    int64_t n_ubatch = 512;  // rows of one step; changes speed and work space, never results
};

class Session {
  public:
    // Takes all memory the context can need. Throws invalid or out_of_memory.
    Session(std::shared_ptr<const model::Model> model, const SessionParams& params, const Logger& log);
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;

    const model::Model& model() const noexcept { return *model_; }
    int64_t n_context() const noexcept { return n_context_; }
    uint64_t kv_bytes() const noexcept { return kv_.size_bytes(); }

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

    // The logits after the last token, evaluating it first where that is still due. Throws invalid for an
    // empty session.
    std::span<const float> last_logits(const CancelToken* cancel);

    // Forgets the tokens from position `count` on.
    void truncate(int64_t count);

  private:
    void check(std::span<const int32_t> ids, int64_t n_forgotten) const;
    void run_step(std::span<const int32_t> tokens, int64_t position, int64_t first_wanted, float* logits,
                  const CancelToken* cancel);

    std::shared_ptr<const model::Model> model_;
    int64_t n_context_;
    model::StepSpace space_;  // before the cache, whose error names the context that still fits
    kv::KvCache kv_;
    std::vector<model::StepRow> rows_;  // [n_ubatch]
    Buffer last_logits_;                // [n_vocab], valid while every token is evaluated
    std::vector<int32_t> tokens_;       // capacity n_context: never grows later
    int64_t n_evaluated_ = 0;           // n_tokens() or one less
};

}  // namespace minim::engine
