// SPDX-License-Identifier: Apache-2.0
#include "runtime/placement.h"

#include <algorithm>
#include <utility>

#include "base/format_text.h"

namespace minim::runtime {
namespace {

// Returns "layer 3", "layers 0-2, 5".
std::string layers_text(std::span<const int64_t> layers) {
    std::string ranges;
    int64_t n_ranges = 0;
    for (size_t i = 0; i < layers.size(); ++n_ranges) {
        const int64_t first = layers[i];
        int64_t last = first;
        for (++i; i < layers.size() && layers[i] == last + 1; ++i) ++last;
        ranges += format_text("{}{}", ranges.empty() ? "" : ", ", first);
        if (last > first) ranges += format_text("-{}", last);
    }
    return (layers.size() == 1 ? "layer " : "layers ") + ranges;
}

}  // namespace

bool Shard::has_experts_of(int64_t layer) const noexcept {
    return std::ranges::binary_search(expert_layers, layer);
}

Placement::Placement(std::vector<Stage> stages, int64_t prompt_rows)
    : stages_(std::move(stages)), prompt_rows_(prompt_rows) {
    std::erase_if(stages_, [](const Stage& stage) { return stage.n_layer == 0; });
    if (stages_.empty()) return;
    int64_t first = 0;
    for (const Stage& stage : stages_)
        shards_.push_back({.backend = stage.backend,
                           .first_layer = std::exchange(first, first + stage.n_layer),
                           .n_layer = stage.n_layer});
    shards_.front().has_embedding = true;
    shards_.back().has_output = true;
    for (size_t s = 0; s < stages_.size(); ++s) {
        if (s > 0) {
            ++shards_[s - 1].out.streams;
            ++shards_[s].in.streams;
        }
        for (int64_t i = 0; i < stages_[s].n_layer; ++i) {
            const size_t at = stages_[s].has_experts_of(i) ? s : shard_on(stages_[s].experts_of(i));
            shards_[at].expert_layers.push_back(std::ssize(experts_));
            experts_.push_back(at);
            if (at == s) continue;
            for (Shard::Crossings* crossings : {&shards_[s].out, &shards_[at].in}) {
                ++crossings->streams;
                ++crossings->routings;
            }
            ++shards_[at].out.streams;
            ++shards_[s].in.streams;
        }
    }
}

Placement Placement::of_ranks(std::vector<Shard> shards, int64_t n_layer, int64_t prompt_rows) {
    Placement placement;
    placement.shards_ = std::move(shards);
    for (const Shard& shard : placement.shards_) placement.stages_.push_back({shard.backend, shard.n_layer});
    placement.experts_.assign(n_layer, 0);
    placement.prompt_rows_ = prompt_rows;
    placement.has_ranks_ = true;
    return placement;
}

// Returns the index of the first shard on a backend, which is added if there is none.
size_t Placement::shard_on(const std::shared_ptr<const backend::Backend>& backend) {
    const auto found = std::ranges::find(shards_, backend, &Shard::backend);
    const int64_t index = found - shards_.begin();
    if (found == shards_.end()) shards_.push_back({.backend = backend});
    return index;
}

size_t Placement::device_of(int64_t layer) const noexcept {
    return static_cast<size_t>(
        std::ranges::find_if(shards_, [&](const Shard& shard) { return shard.has_layer(layer); }) -
        shards_.begin());
}

std::string to_string(const Placement& placement, std::span<const int64_t> n_cached) {
    std::string text;
    for (size_t i = 0; i < placement.shards().size(); ++i) {
        const Shard& shard = placement.shards()[i];
        std::string parts;
        std::vector<int64_t> layers, experts;
        for (int64_t l = 0; l < placement.n_layer(); ++l) {
            if (shard.has_layer(l)) {
                layers.push_back(l);
            } else if (shard.has_experts_of(l)) {
                experts.push_back(l);
            }
        }
        if (!layers.empty()) parts = layers_text(layers);
        if (!experts.empty())
            parts += (parts.empty() ? "experts of " : ", experts of ") + layers_text(experts);
        if (i < n_cached.size() && n_cached[i] > 0)
            parts += format_text(", cache of {} experts", n_cached[i]);
        text += format_text("{}{} ({})", text.empty() ? "" : ", ", shard.backend->name(), parts);
    }
    return text;
}

}  // namespace minim::runtime
