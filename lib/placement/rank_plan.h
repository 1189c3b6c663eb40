// SPDX-License-Identifier: Apache-2.0
// Plans for ranks: what each has of the model, whether it has room for that, and how fast they are together. Unlike a plan for layers,
// there is nothing to search: the numbers of ranks decide what each has.
#pragma once

#include <span>

#include "model/config.h"
#include "placement/facts.h"
#include "placement/plan.h"
#include "placement/request.h"
#include "weights/spec.h"

namespace minim::placement {

// Makes the plan of request.parallel, which has several ranks: one on each device, or each on a host like that of the machine if there
// are no devices. Throws invalid for what ranks cannot do: uneven shares, layers or experts on the host, devices of different
// kinds, and numbers of devices other than that of the ranks.
Plan plan_ranks(Request request, const Machine& machine, const model::Config& config,
                std::span<const weights::WeightSpec> weights);

}  // namespace minim::placement
