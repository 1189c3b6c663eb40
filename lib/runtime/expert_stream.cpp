// SPDX-License-Identifier: Apache-2.0
#include "runtime/expert_stream.h"

#include <algorithm>

#include "weights/stored_rows.h"
#include "weights/tasks_that_throw.h"

namespace minim::runtime {
namespace {

using backend::ExpertPlace;
using backend::ExpertStack;
using backend::ExpertWeights;
using weights::WeightSpec;

// A thread unpacks 5 to 10 GB/s, a link takes 12 to 50 GB/s; the host's other threads go on computing experts.
constexpr int32_t k_most_copiers = 8;
constexpr int32_t k_threads_a_copier = 4;

uint64_t most_matrix_bytes(std::span<const PooledLayer> layers) {
    uint64_t most = 0;
    for (const PooledLayer& layer : layers)
        for (const WeightSpec* weight : {layer.gate.front(), layer.up.front(), layer.down.front()})
            most = std::max(most, weight->bytes());
    return most;
}

}  // namespace

ExpertStream::ExpertStream(const backend::Backend& device, const backend::HostDevice& host,
                           std::span<const PooledLayer> layers, const weights::Reader& reader,
                           const StreamRule& rule, const StreamSpace& space)
    : device_(device),
      reader_(reader),
      rule_(rule),
      space_(space),
      threads_(std::clamp(host.n_threads() / k_threads_a_copier, 1, k_most_copiers)),
      to_pack_(static_cast<size_t>(space.chunk_experts)) {
    constexpr const char* k_what = "experts on their way";
    memory_ = device.allocate(space.device_bytes(), k_what);
    std::byte* next = memory_->data();
    for (Area& each : areas_) {
        each.table = reinterpret_cast<ExpertPlace*>(next);
        each.data = next + space.table_bytes;
        each.experts = shapes_on(device, layers.front());
        next = each.data + space.data_bytes;
    }
    for (int32_t i = 0; i < threads_.n_threads(); ++i)
        copiers_.push_back({device.allocate_staging(most_matrix_bytes(layers), k_what), device.reserve({})});
    table_ = device.allocate_staging(space.table_bytes, k_what);
}

// Copies one matrix, in the order of the checkpoint.
void ExpertStream::copy(const WeightSpec& weight, const backend::Matrix& on_host, std::byte* to,
                        Copier& copier) const {
    const std::span<std::byte> rows(copier.staging->data(), weight.bytes());
    weights::read_stored_rows(weight, on_host, reader_, rows);
    device_.upload(*copier.stream, to, rows.data(), rows.size());
    device_.synchronize(*copier.stream);
}

// Packs a matrix of each expert in place, all at once.
void ExpertStream::pack(const ExpertStack& stack, std::span<const int32_t> experts,
                        const std::byte* ExpertPlace::*matrix) {
    if (!stack.packed) return;
    const auto* table = reinterpret_cast<const ExpertPlace*>(table_->data());
    const std::span data = std::span(to_pack_).first(experts.size());
    std::ranges::transform(experts, data.begin(),
                           [&](int32_t e) { return const_cast<std::byte*>(table[e].*matrix); });
    device_.pack(data, {data.front(), stack.format, stack.rows, stack.cols, stack.row_bytes});
}

void ExpertStream::fill(size_t area, const PooledLayer& layer, const ExpertWeights& shapes,
                        std::span<const int32_t> experts) {
    Area& to = areas_[area];
    to.experts = shapes;
    to.experts.places = to.table;
    const std::span table(reinterpret_cast<ExpertPlace*>(table_->data()), layer.gate.size());
    std::ranges::fill(table, ExpertPlace{});
    for (size_t i = 0; i < experts.size(); ++i)
        table[static_cast<size_t>(experts[i])] =
            place_at(layer, experts[i], to.data + i * place_bytes(layer));
    weights::FirstError error;
    threads_.run(3 * std::ssize(experts), [&](int64_t i, int32_t thread) {
        const int32_t expert = experts[static_cast<size_t>(i / 3)];
        const auto e = static_cast<size_t>(expert);
        Copier& copier = copiers_[static_cast<size_t>(thread)];
        const auto copy_matrix = [&](const WeightSpec& weight, const ExpertStack& on_host,
                                     const std::byte* place) {
            error.run([&] { copy(weight, on_host.matrix(expert), const_cast<std::byte*>(place), copier); });
        };
        if (i % 3 == 0) copy_matrix(*layer.gate[e], layer.on_host->gate, table[e].gate);
        if (i % 3 == 1) copy_matrix(*layer.up[e], layer.on_host->up, table[e].up);
        if (i % 3 == 2) copy_matrix(*layer.down[e], layer.on_host->down, table[e].down);
    });
    error.rethrow();
    pack(to.experts.gate, experts, &ExpertPlace::gate);
    pack(to.experts.up, experts, &ExpertPlace::up);
    pack(to.experts.down, experts, &ExpertPlace::down);
    backend::Scratch& stream = *copiers_.front().stream;
    device_.upload(stream, reinterpret_cast<std::byte*>(to.table), table_->data(), table.size_bytes());
    device_.synchronize(stream);
}

}  // namespace minim::runtime
