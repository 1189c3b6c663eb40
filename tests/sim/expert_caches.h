// SPDX-License-Identifier: Apache-2.0
// Models whose devices have a cache of experts, and what tests read from these models.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "runtime/expert_pool.h"
#include "sim/devices.h"
#include "support/helpers.h"

namespace minim::test {

// Opens a model with its layers on the devices, the experts of n_host_layers of them on the host, and room for `bytes` of these on
// the devices.
std::shared_ptr<const model::Model> with_cache(const Devices& devices, uint64_t bytes,
                                               runtime::ExpertMoves moves,
                                               const std::string& path = bundled_model_path(),
                                               int64_t n_host_layers = INT32_MAX,
                                               const runtime::StreamRule& rule = {});

// Returns the sums over all devices.
runtime::ExpertPoolState state_of(const model::Model& model);

// Return bytes on a device: of all experts of the layers with a cache, and of one expert of the first such layer.
uint64_t all_experts(const model::Model& model);
uint64_t one_expert(const model::Model& model);

// Lets the first, the second ... of n_exchanges exchanges with the host fail. Each time use(devices) throws device_lost within
// seconds.
void check_failing_exchanges(int64_t n_exchanges, const std::function<void(const Devices&)>& use);

}  // namespace minim::test
