// Weights of our own memory, brought into the order the backend reads fastest.
#pragma once

#include <functional>

#include "backend/backend.h"
#include "base/cancel.h"
#include "model/weights.h"

namespace minim::model {

// The same bytes where they may be rewritten; null for those that may not.
using Writable = std::function<std::byte*(const std::byte*)>;

// Pack every matrix of a linear or an expert whose format the backend packs, in place; the embedding and the
// router stay rows. They throw out_of_memory and cancelled; some matrices are packed then and some are not.
void pack_matrix(const backend::Backend& backend, const Writable& writable, backend::Matrix& matrix,
                 const CancelToken* cancel);
void pack_attention(const backend::Backend& backend, const Writable& writable, LayerWeights& layer,
                    const CancelToken* cancel);
void pack_experts(const backend::Backend& backend, const Writable& writable, LayerWeights& layer,
                  const CancelToken* cancel);
void pack_weights(const backend::Backend& backend, const Writable& writable, Weights& weights,
                  const CancelToken* cancel);

}  // namespace minim::model
