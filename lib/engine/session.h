// SPDX-License-Identifier: Apache-2.0
// The state of one conversation: its tokens and their KV cache. A session belongs to one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/cancel.h"
#include "base/log.h"
#include "engine/scheduler.h"
#include "kv/sequence.h"
#include "kv/state_file.h"
#include "model/model.h"
#include "runtime/step_space.h"

namespace minim::engine {

struct SessionParams {
    int64_t n_context = 0;  // 0: the context that the model was trained for, or that of the state file
    std::optional<Format> k_format;  // none: F16, or that of the state file
    std::optional<Format> v_format;
    int64_t n_ubatch =
        0;  // rows of one step; changes speed and work space, never results. 0: Model::prompt_rows()
};

// Returns the layout of the KV cache; the default format is F16.
backend::KvLayout kv_layout(const model::Config& config, std::optional<Format> k_format,
                            std::optional<Format> v_format);

// Makes the pool of KV cache pages, each layer's part in the memory of its device.
std::shared_ptr<kv::PagePool> make_pool(const model::Model& model, std::optional<Format> k_format,
                                        std::optional<Format> v_format);

// Throws invalid for ids that are not tokens of the model, naming the first one and its index.
void check_ids(std::span<const int32_t> ids, const model::Config& config);

class Session {
  public:
    // Reserves all memory of the context. Throws invalid or out_of_memory.
    Session(const std::shared_ptr<const model::Model>& model, const SessionParams& params, const Logger& log);
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;

    const model::Model& model() const noexcept { return *model_; }
    int64_t n_context() const noexcept { return n_context_; }
    // Returns the bytes of the KV cache for the whole context.
    uint64_t kv_bytes() const { return kv::bytes_for(sequence_.kv->layout(), n_context_); }

    // Returns all tokens; the last one may not be evaluated yet: a generated token is evaluated when its successor is
    // requested.
    std::span<const int32_t> tokens() const noexcept { return sequence_.tokens; }
    int64_t n_tokens() const noexcept { return sequence_.n_tokens(); }

    // Appends and evaluates `ids`. `logits` is empty, or holds [ids.size(), n_vocab] with all_logits, else
    // [1, n_vocab]. Throws invalid, context_full or cancelled with the session as it was; `logits` is then
    // unspecified.
    void eval(std::span<const int32_t> ids, bool all_logits, std::span<float> logits,
              const CancelToken* cancel);

    // Checks the arguments of eval(), as if the last n_forgotten tokens were removed.
    void check_eval(std::span<const int32_t> ids, bool all_logits, std::span<const float> logits,
                    int64_t n_forgotten) const;

    // Appends a token without evaluating it. There must be room for it.
    void append(int32_t token);

    // Evaluates the last token if it is not evaluated yet. Throws invalid for an empty session.
    void eval_last(const CancelToken* cancel);

    // Returns the logits after the last token, copied to the host; nothing if it is not evaluated yet.
    std::span<const float> known_logits();

    // Reserves memory for the logits of n draft tokens a step. Throws out_of_memory.
    void reserve_drafts(int64_t n);

    // Lets an answer choose the next token, and more if drafts are accepted, and appends them. There must be room for
    // one. The last token is evaluated first if needed.
    void extend(Answer& answer, const CancelToken* cancel);

    // Adds the inputs of matrices in later evaluations to `inputs`, which are of this model; null: no more. Forks do not. Throws
    // unsupported if a device cannot show them.
    void observe(std::shared_ptr<runtime::ObservedInputs> inputs) { scheduler_.observe(std::move(inputs)); }

    // Removes the tokens from position `count` on.
    void truncate(int64_t count);

    // Returns a session with the same tokens, which shares whole pages of the KV cache. Both go on independently, on any
    // thread. Takes memory for the rest of the context; throws out_of_memory.
    std::unique_ptr<Session> fork();

    // Writes the first n_saved tokens with their KV cache, and the logits if these are all tokens, to a file, which
    // gets its name when it is complete. Throws as kv::write_state.
    void save(const std::string& path, int64_t n_saved, const CancelToken* cancel);
    void save(const kv::Write& write, int64_t n_saved, const CancelToken* cancel);
    // Returns the bytes that save() writes.
    uint64_t saved_bytes(int64_t n_saved);

    // Restores a session that was saved by the same model. Throws as kv::StateFile::read_pages and the constructor; format if the
    // file is of another model; invalid if its tokens do not fit into the requested context, or its KV cache has
    // other formats than requested.
    static std::unique_ptr<Session> restore(const std::shared_ptr<const model::Model>& model,
                                            const kv::StateFile& file, const SessionParams& params,
                                            const CancelToken* cancel, const Logger& log);

  private:
    Session(const std::shared_ptr<const model::Model>& model, int64_t n_context, int64_t n_ubatch);
    kv::State state_of(int64_t n_saved);
    void set_state(std::span<const int32_t> tokens, int64_t n_evaluated, std::span<const float> logits);
    void check(std::span<const int32_t> ids, int64_t n_forgotten) const;
    int64_t n_evaluated_of(int64_t count) const noexcept;
    bool has_waiting_token() const noexcept { return sequence_.n_due() > 0; }
    void eval_chunks(int64_t n_before, std::span<float> every_row, const CancelToken* cancel);

    std::shared_ptr<const model::Model> model_;
    int64_t n_context_;
    Scheduler scheduler_;  // before the cache, whose error names the context that still fits
    Sequence sequence_;    // at most one token is not evaluated yet; has capacity for n_context tokens
};

}  // namespace minim::engine
