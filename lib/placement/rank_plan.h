// SPDX-License-Identifier: Apache-2.0
// Plans for ranks: what each has of the model, whether it has room for that, and how fast they are together. Unlike a plan for layers,
// there is nothing to search: the numbers of ranks decide what each has.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "model/config.h"
#include "placement/facts.h"
#include "placement/plan.h"
#include "placement/request.h"
#include "weights/spec.h"

namespace minim::placement {

// A device as one rank.
struct RankDevice {
    std::string_view name;
    std::string generation;  // "sm_90"; empty: not known
};

// Throws invalid for what a request asks for beside ranks and cannot have with them: uneven shares, layers or experts on the host,
// devices of different kinds or generations. `text` says what ranks it asks for (text_of).
void check_beside_ranks(const Request& request, std::span<const RankDevice> ranks, std::string_view text);

// Makes the plan of request.parallel, which has several ranks: one on each device, or each on a host like that of the machine if there
// are no devices. Throws invalid as check_beside_ranks(), and for numbers of devices other than that of the ranks.
Plan plan_ranks(Request request, const Machine& machine, const model::Config& config,
                std::span<const weights::WeightSpec> weights);

}  // namespace minim::placement
