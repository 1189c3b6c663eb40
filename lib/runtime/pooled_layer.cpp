// SPDX-License-Identifier: Apache-2.0
#include "runtime/pooled_layer.h"

#include "base/checked.h"
#include "base/error.h"

namespace minim::runtime {
namespace {

using backend::ExpertStack;
using weights::WeightSpec;

constexpr uint64_t k_matrix_alignment = 256;

// Returns the shape and format that matrices like this one have on a device, without addresses.
ExpertStack stack_on(const backend::Backend& device, const WeightSpec& weight, const ExpertStack& on_host) {
    if (!device.runs(weight.format))
        fail_on_device(device.name(), Status::unsupported, "does not compute with weights of {}",
                       traits(weight.format).name);
    ExpertStack stack;
    stack.format = weight.format;
    stack.rows = weight.rows;
    stack.cols = weight.cols;
    stack.row_bytes = weight.row_bytes;
    stack.packed = device.packs(weight.format);
    stack.expert.assign(on_host.expert.size(), nullptr);
    return stack;
}

}  // namespace

uint64_t room_of(const WeightSpec& weight) {
    return align_up(weight.bytes(), k_matrix_alignment);
}

uint64_t place_bytes(const PooledLayer& layer) {
    return room_of(*layer.gate.front()) + room_of(*layer.up.front()) + room_of(*layer.down.front());
}

uint64_t bytes_of_all(std::span<const PooledLayer> layers) {
    uint64_t bytes = 0;
    for (const PooledLayer& layer : layers) bytes += place_bytes(layer) * layer.gate.size();
    return bytes;
}

backend::ExpertWeights shapes_on(const backend::Backend& device, const PooledLayer& layer) {
    backend::ExpertWeights shapes;
    shapes.activation = layer.on_host->activation;
    shapes.gate = stack_on(device, *layer.gate.front(), layer.on_host->gate);
    shapes.up = stack_on(device, *layer.up.front(), layer.on_host->up);
    shapes.down = stack_on(device, *layer.down.front(), layer.on_host->down);
    return shapes;
}

backend::ExpertPlace place_at(const PooledLayer& layer, int32_t expert, const std::byte* data) {
    const int64_t e = expert;
    backend::ExpertPlace place;
    place.gate = data;
    place.up = place.gate + room_of(*layer.gate[e]);
    place.down = place.up + room_of(*layer.up[e]);
    place.gate_scale = layer.on_host->gate.scale_of(expert);
    place.up_scale = layer.on_host->up.scale_of(expert);
    place.down_scale = layer.on_host->down.scale_of(expert);
    return place;
}

}  // namespace minim::runtime
