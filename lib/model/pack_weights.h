// Weights in a device's own memory, brought into the order its kernels read fastest.
#pragma once

#include "backend/backend.h"
#include "base/cancel.h"
#include "model/visit_weights.h"

namespace minim::model {

// Packs every matrix of a linear or an expert whose format the backend packs, in place; the embedding and the router
// stay rows. Throws out_of_memory, out_of_device_memory and cancelled; some matrices are packed then and some are not.
void pack_stage(const backend::Backend& backend, Weights& weights, const StageOfWeights& stage,
                const CancelToken* cancel);

}  // namespace minim::model
