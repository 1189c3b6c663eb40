// SPDX-License-Identifier: Apache-2.0
// Places a model that is opened: plans it for the memory that its open devices have, and turns the plan into a placement on them.
#pragma once

#include <vector>

#include "base/log.h"
#include "model/model.h"
#include "placement/facts.h"
#include "placement/plan.h"
#include "placement/request.h"
#include "runtime/placement.h"

namespace minim::placement {

// Returns the stages of a plan for a machine whose devices are open. Experts of a layer on the host stay with it, whichever backend of
// the host it has.
std::vector<runtime::Stage> stages_of(const Plan& plan, const Machine& machine);

// Returns a function that places a model as the request says. Speeds are measured if they matter. By them, a cache of all room gets no
// more experts than pay, prompt steps get their rows, and steps copy missing experts to a device with a cache (predict.h); if they stay
// unknown, steps never copy experts. Throws invalid for impossible numbers; the function throws as read_rules() and check_rules(), and
// out_of_device_memory if a device has no room for what is not experts. It writes a chosen context to `log`, which must outlive it.
model::Model::Place place_on(Machine machine, Request request, const Logger* log = nullptr);

}  // namespace minim::placement
