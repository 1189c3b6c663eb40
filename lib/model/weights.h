// Where every weight of the model lies, ready for the operations: views into the loaded checkpoint, checked
// against the configuration once, here, and trusted afterwards.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "backend/backend.h"
#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "model/config.h"
#include "model/gathered_weights.h"

namespace minim::model {

struct LayerWeights {
    backend::Vector attn_norm;       // [hidden]
    backend::Matrix wq, wk, wv;      // [n_head * head_dim, hidden], [n_head_kv * head_dim, hidden] twice
    backend::Vector q_norm, k_norm;  // [n_head * head_dim], [n_head_kv * head_dim]
    backend::Matrix wo;              // [hidden, n_head * head_dim]
    backend::Vector ffn_norm;        // [hidden]
    backend::Matrix router;          // [n_expert, hidden]
    backend::Vector router_bias;     // [n_expert] or empty
    backend::ExpertWeights experts;
    backend::Vector experts_norm;  // ffn_norm once more, for experts that lie elsewhere than it does
};

struct Weights {
    backend::Matrix embedding;  // [n_vocab, hidden]
    std::vector<LayerWeights> layers;
    backend::Vector output_norm;  // [hidden]
    backend::Matrix output;       // [n_vocab, hidden]

    // Null where every matrix is one tensor of the checkpoint. Else there are places among the data above where no memory
    // lies: read() gives their bytes.
    std::shared_ptr<GatheredWeights> gathered;

    // Norms and biases that the file stores in another type than float.
    std::vector<std::vector<float>> widened;

    // What matrices whose rows are split among memory nodes point to: they stay where they are.
    std::deque<backend::RowSplit> splits;
    std::deque<std::vector<const std::byte*>> parts;
};

// The checkpoint must be loaded and must outlive the weights. Sets config.n_vocab and config.n_expert from
// the tensors. Throws format (missing tensor, wrong shape) or unsupported (a type without decoder, a tensor
// the forward pass does not know), always naming the tensor. Multi-token-prediction tensors are skipped with
// a note in the log.
Weights bind_weights(const checkpoint::Checkpoint& checkpoint, Config& config, const Logger& log);

// The same checks on a checkpoint that is not loaded yet: a bad one fails before its data is read. Returns the weights
// without data: their shapes and formats.
Weights check_weights(const checkpoint::Checkpoint& checkpoint, Config& config);

}  // namespace minim::model
