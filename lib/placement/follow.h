// SPDX-License-Identifier: Apache-2.0
// What a process that does not plan the steps does: it computes its ranks' share of the leading process's steps.
#pragma once

#include "model/model.h"

namespace minim::placement {

// Returns when the leading process closes the model. Throws the error that ended the work: of a rank, or peer_lost. Throws invalid
// in the leading process.
void follow(const model::Model& model);

}  // namespace minim::placement
