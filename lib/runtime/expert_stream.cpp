// SPDX-License-Identifier: Apache-2.0
#include "runtime/expert_stream.h"

#include <algorithm>

#include "weights/tasks_that_throw.h"

namespace minim::runtime {
namespace {

using backend::ExpertPlace;
using backend::ExpertStack;
using backend::ExpertWeights;
using weights::WeightSpec;

// Copies of pinned memory take no time of these threads. Of other memory a thread copies some 5 GB/s, a link takes 12 to 50 GB/s,
// and the host's other threads go on computing experts.
constexpr int32_t k_max_copiers = 8;
constexpr int32_t k_threads_a_copier = 4;

}  // namespace

ExpertStream::ExpertStream(const backend::Backend& device, const backend::HostDevice& host,
                           std::span<const PooledLayer> layers, const weights::Reader& reader,
                           const StreamRule& rule, const StreamSpace& space)
    : device_(device),
      rule_(rule),
      space_(space),
      threads_(std::clamp(host.n_threads() / k_threads_a_copier, 1, k_max_copiers)),
      to_pack_(space.chunk_experts) {
    constexpr const char* k_what = "experts on their way";
    memory_ = device.allocate(space.device_bytes(), k_what);
    std::byte* next = memory_->data();
    for (Area& each : areas_) {
        each.table = reinterpret_cast<ExpertPlace*>(next);
        each.data = next + space.table_bytes;
        each.experts = shapes_on(device, layers.front());
        next = each.data + space.data_bytes;
    }
    for (int32_t i = 0; i < threads_.n_threads(); ++i) copiers_.emplace_back(device, layers, reader);
    table_ = device.allocate_staging(space.table_bytes, k_what);
}

// Packs a matrix of each expert in place, all at once.
void ExpertStream::pack(const ExpertStack& stack, std::span<const int32_t> experts,
                        const std::byte* ExpertPlace::*matrix) {
    const auto* table = reinterpret_cast<const ExpertPlace*>(table_->data());
    const std::span data = std::span(to_pack_).first(experts.size());
    std::ranges::transform(experts, data.begin(),
                           [&](int32_t e) { return const_cast<std::byte*>(table[e].*matrix); });
    device_.pack(data, {data.front(), stack.format, stack.rows, stack.cols, stack.row_bytes});
}

// Copies the matrices of experts to the places in the table.
void ExpertStream::copy(const PooledLayer& layer, std::span<const int32_t> experts) {
    const auto* table = reinterpret_cast<const ExpertPlace*>(table_->data());
    weights::FirstError error;
    threads_.run(3 * std::ssize(experts), [&](int64_t i, int32_t thread) {
        const int32_t expert = experts[i / 3];
        const int64_t e = expert;
        ExpertCopier& copier = copiers_[thread];
        const auto start = [&](const WeightSpec& weight, const ExpertStack& on_host, const std::byte* place) {
            error.run([&] { copier.start(weight, on_host, expert, const_cast<std::byte*>(place)); });
        };
        if (i % 3 == 0) start(*layer.gate[e], layer.on_host->gate, table[e].gate);
        if (i % 3 == 1) start(*layer.up[e], layer.on_host->up, table[e].up);
        if (i % 3 == 2) start(*layer.down[e], layer.on_host->down, table[e].down);
    });
    for (ExpertCopier& copier : copiers_) error.run([&] { copier.finish(); });
    error.rethrow();
}

void ExpertStream::fill(size_t area, const PooledLayer& layer, const ExpertWeights& shapes,
                        std::span<const int32_t> experts) {
    Area& to = areas_[area];
    to.experts = shapes;
    to.experts.places = to.table;
    const std::span table(reinterpret_cast<ExpertPlace*>(table_->data()), layer.gate.size());
    std::ranges::fill(table, ExpertPlace{});
    for (size_t i = 0; i < experts.size(); ++i)
        table[experts[i]] = place_at(layer, experts[i], to.data + i * place_bytes(layer));
    copy(layer, experts);
    const auto pack_rows = [&](const ExpertStack& stack, const WeightSpec& weight, const ExpertStack& on_host,
                               const std::byte* ExpertPlace::*matrix) {
        if (is_left_to_pack(device_, weight, on_host)) pack(stack, experts, matrix);
    };
    pack_rows(to.experts.gate, *layer.gate.front(), layer.on_host->gate, &ExpertPlace::gate);
    pack_rows(to.experts.up, *layer.up.front(), layer.on_host->up, &ExpertPlace::up);
    pack_rows(to.experts.down, *layer.down.front(), layer.on_host->down, &ExpertPlace::down);
    backend::Scratch& stream = copiers_.front().stream();
    device_.upload(stream, reinterpret_cast<std::byte*>(to.table), table_->data(), table.size_bytes());
    device_.synchronize(stream);
}

}  // namespace minim::runtime
