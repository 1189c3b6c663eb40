// SPDX-License-Identifier: Apache-2.0
#include "sim/devices.h"

#include <algorithm>

#include "cpu/cpu_backend.h"
#include "model/roles.h"
#include "placement/backends.h"
#include "placement/planner.h"
#include "runtime/placement.h"
#include "support/last_logits.h"

namespace minim::test {

std::shared_ptr<const backend::HostDevice> cpu_backend() {
    return placement::make_backend("cpu", std::make_shared<ThreadPool>(2), active_cpu_level());
}

namespace {

// Returns stages on these backends in turn; the layers after the first `n_before` are spread in equal shares.
std::vector<runtime::Stage> spread(const Devices& devices, int64_t n_layer) {
    const std::vector<int64_t> counts =
        placement::split_layers(n_layer, std::vector<double>(devices.size(), 1.0));
    std::vector<runtime::Stage> stages;
    for (size_t i = 0; i < devices.size(); ++i) stages.push_back({devices[i], counts[i]});
    return stages;
}

}  // namespace

std::string bundled_model_path() {
    return std::string(MINIM_EXAMPLE_MODELS) + "/minim-tiny-q8_0.gguf";
}

Devices make_devices(size_t count, const sim::Options& options) {
    Devices devices;
    for (size_t i = 0; i < count; ++i)
        devices.push_back(std::make_shared<const sim::SimBackend>(static_cast<int32_t>(i), options));
    return devices;
}

std::shared_ptr<const model::Model> model_on(const Devices& devices, const model::OpenOptions& options,
                                             const std::string& path) {
    const Logger silent;
    const auto split = [&](const model::Config& config, std::span<const weights::WeightSpec>) {
        return spread(devices, config.n_layer);
    };
    return std::make_shared<const model::Model>(path, split, options, silent);
}

std::shared_ptr<const model::Model> model_on_cpu_and(const Devices& devices,
                                                     const model::OpenOptions& options) {
    const Logger silent;
    const auto split = [&](const model::Config& config, std::span<const weights::WeightSpec>) {
        std::vector<runtime::Stage> stages = spread(devices, config.n_layer - 1);
        stages.insert(stages.begin(), {cpu_backend(), 1});
        return stages;
    };
    return std::make_shared<const model::Model>(bundled_model_path(), split, options, silent);
}

placement::Machine machine_of(const Backends& devices, const Backends& others,
                              std::shared_ptr<const backend::Backend> host) {
    placement::Machine machine;
    for (const auto& device : devices) machine.devices.push_back({.name = std::string(device->name())});
    machine.backends = devices;
    machine.backends.push_back(std::move(host));
    for (const auto& other : others) {
        machine.others[std::string(other->name())] = std::ssize(machine.backends);
        machine.backends.push_back(other);
    }
    return machine;
}

std::shared_ptr<const model::Model> model_placed(placement::Machine machine, placement::Request request,
                                                 const model::OpenOptions& options, const std::string& path) {
    const Logger silent;
    request.caches_host_experts = request.cache_bytes > 0;
    return std::make_shared<const model::Model>(
        path, placement::place_on(std::move(machine), std::move(request)), options, silent);
}

std::shared_ptr<const model::Model> model_on_cpu(const std::string& path) {
    const Logger silent;
    return std::make_shared<const model::Model>(path, cpu_backend(), model::OpenOptions{}, silent);
}

engine::Session make_session(std::shared_ptr<const model::Model> model, int64_t n_context) {
    engine::SessionParams params;
    params.n_context = n_context;
    const Logger silent;
    return {std::move(model), params, silent};
}

std::vector<float> all_logits(engine::Session& session, const std::vector<int32_t>& ids, size_t chunk) {
    const auto n_vocab = static_cast<size_t>(session.model().config().n_vocab);
    std::vector<float> logits(ids.size() * n_vocab);
    for (size_t at = 0; at < ids.size(); at += chunk) {
        const size_t count = std::min(chunk, ids.size() - at);
        session.eval(std::span(ids).subspan(at, count), true,
                     std::span(logits).subspan(at * n_vocab, count * n_vocab), nullptr);
    }
    return logits;
}

std::vector<float> last_logits(engine::Session& session) {
    const std::span<const float> logits = last_logits_of(session);
    return {logits.begin(), logits.end()};
}

std::vector<weights::WeightSpec> shapes_of_layers(size_t n_layer) {
    std::vector<weights::WeightSpec> shapes(n_layer);
    for (size_t i = 0; i < n_layer; ++i) {
        shapes[i].role = static_cast<int32_t>(model::Role::wq);
        shapes[i].layer = static_cast<int32_t>(i);
        shapes[i].rows = 4;
        shapes[i].row_bytes = 1024;
    }
    return shapes;
}

bool is_empty(const Devices& devices) {
    return std::ranges::all_of(devices, [](const auto& device) { return device->used_bytes() == 0; });
}

}  // namespace minim::test
