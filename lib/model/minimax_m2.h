// The forward pass of MiniMax-M2, written once over the operations of a backend.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "base/buffer.h"
#include "base/cancel.h"
#include "model/config.h"
#include "model/weights.h"

namespace minim::model {

// One row of a step.
struct StepRow {
    int32_t token = 0;
    backend::KvRow at;  // its sequence and position
    bool wants_logits = false;
};

// Sees the residual stream after each layer and the experts it chose; for tests and inspection.
// x: [n, hidden], ids and gates: [n, n_expert_used]. With an observer the last layer computes every row.
using LayerObserver =
    std::function<void(int64_t layer, int64_t n, const float* x, const int32_t* ids, const float* gates)>;

// The activations and work space of one stream of steps of at most n_rows rows. Not shared between threads.
class StepSpace {
  public:
    StepSpace(const backend::Backend& backend, const Config& config, int64_t n_rows, int64_t n_context);

    int64_t n_rows() const noexcept { return n_rows_; }

  private:
    friend class ForwardPass;
    int64_t n_rows_;
    std::unique_ptr<backend::Scratch> scratch_;
    Buffer memory_;                      // holds what the pointers below point to
    float *x_, *h_, *q_, *k_, *v_, *o_;  // [n_rows, hidden] twice, then [n_rows, heads * head_dim]
    float* gates_;                       // [n_rows, n_expert_used]
    int32_t* ids_;                       // the same
    std::vector<int32_t> tokens_;        // [n_rows]
    std::vector<backend::KvRow> rows_;   // [n_rows]
};

// Rotary frequencies theta^(-2i / rotary_dim), i < rotary_dim / 2.
std::vector<float> rope_frequencies(const Config& config);

class ForwardPass {
  public:
    ForwardPass(const backend::Backend& backend, const Config& config, const Weights& weights);

    // Stores the rows' keys and values and writes the logits of the rows that want them, in row order:
    // [number of such rows, n_vocab]. Rows of one sequence come in position order. Throws cancelled between
    // layers; the KV entries written until then are garbage beyond the caller's count of kept tokens.
    void step(std::span<const StepRow> rows, StepSpace& space, float* logits, const CancelToken* cancel,
              const LayerObserver& observer = {}) const;

  private:
    void attention(const LayerWeights& layer, int64_t index, int64_t n, StepSpace& space) const;
    void keep_wanted_rows(std::span<const StepRow> rows, StepSpace& space) const;

    const backend::Backend& backend_;
    const Config& config_;
    const Weights& weights_;
    std::vector<float> rope_frequency_;
};

}  // namespace minim::model
