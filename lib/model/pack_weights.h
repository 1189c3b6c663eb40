// Weights in a device's own memory, brought into the order its kernels read fastest.
#pragma once

#include "base/cancel.h"
#include "model/visit_weights.h"

namespace minim::model {

// Packs every matrix of a linear or an expert whose format the device packs, in place; the embedding and the router
// stay rows. Throws out_of_memory, out_of_device_memory and cancelled; some matrices are packed then and some are not.
void pack_share(const Share& share, Weights& weights, const CancelToken* cancel);

}  // namespace minim::model
