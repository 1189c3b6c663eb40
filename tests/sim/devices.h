// SPDX-License-Identifier: Apache-2.0
// Models on simulated devices.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/session.h"
#include "model/model.h"
#include "placement/devices.h"
#include "placement/place.h"
#include "sim/sim_backend.h"

namespace minim::test {

std::shared_ptr<const backend::HostDevice> cpu_backend();

using Devices = std::vector<std::shared_ptr<const sim::SimBackend>>;

Devices make_devices(size_t count, const sim::Options& options = {});

std::string bundled_model_path();

// Opens a model with the layers spread evenly.
std::shared_ptr<const model::Model> model_on(const Devices& devices, const model::OpenOptions& options = {},
                                             const std::string& path = bundled_model_path());
// Opens a model with the first layer on the CPU, the others spread over the devices.
std::shared_ptr<const model::Model> model_on_cpu_and(const Devices& devices,
                                                     const model::OpenOptions& options = {});
using Backends = std::vector<std::shared_ptr<const backend::Backend>>;

// Returns a machine of open devices. Rules may name `others`, too.
placement::Machine machine_of(const Backends& devices, const Backends& others = {},
                              std::shared_ptr<const backend::Backend> host = cpu_backend());
// Opens a model placed as the caller says. Its caches are for all experts of the host.
std::shared_ptr<const model::Model> model_placed(placement::Machine machine, placement::Request request = {},
                                                 const model::OpenOptions& options = {},
                                                 const std::string& path = bundled_model_path());
std::shared_ptr<const model::Model> model_on_cpu(const std::string& path = bundled_model_path());

engine::Session make_session(std::shared_ptr<const model::Model> model, int64_t n_context);

// Returns the logits of every token, evaluated in chunks.
std::vector<float> all_logits(engine::Session& session, const std::vector<int32_t>& ids, size_t chunk);
std::vector<float> last_logits(engine::Session& session);

// Returns weight specs of layers of one size.
std::vector<weights::WeightSpec> shapes_of_layers(size_t n_layer);

bool is_empty(const Devices& devices);

}  // namespace minim::test
