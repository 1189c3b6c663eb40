// SPDX-License-Identifier: Apache-2.0
#include "model/model.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/format_text.h"
#include "model/bind.h"
#include "model/expert_pools.h"
#include "model/expert_profile.h"
#include "model/fingerprint.h"
#include "model/headers.h"
#include "model/roles.h"
#include "model/shares.h"
#include "runtime/step_space.h"
#include "weights/finite.h"
#include "weights/mapped.h"

namespace minim::model {
namespace {

using checkpoint::Checkpoint;

// Returns the placement, if it has all layers of the model.
runtime::Placement checked(runtime::Placement placement, const Config& config) {
    if (placement.n_layer() != config.n_layer)
        fail(Status::invalid, "the devices have {} layers, the model {}", placement.n_layer(),
             config.n_layer);
    return placement;
}

// Returns the profile of the file; an empty one if no file is named or it does not exist.
ExpertUses profile_of(const std::string& path, const Config& config, const Logger& log) {
    if (path.empty()) return {};
    try {
        return read_expert_profile(path, config);
    } catch (const Error& error) {
        if (error.status() != Status::not_found) throw;
        log.info("{}: no such profile of experts yet", path);
        return {};
    }
}

// Maps the files unless the caller wants no mapping, or the system maps none of them. Returns whether they are mapped.
bool map_files(Checkpoint& checkpoint, const OpenOptions& options, const Logger& log) {
    throw_if_cancelled(options.cancel, "loading");
    if (options.residence != checkpoint::HostStorage::owned) {
        try {
            checkpoint.map();
            return true;
        } catch (const Error& error) {
            if (error.reason() != Reason::io) throw;
            log.warning("{}; weights are read into memory", error.what());
        }
    }
    checkpoint.check_sizes();
    return false;
}

// Checks norms, biases and routers, which are small beside the other weights: NaN in a router or its bias would only change
// which experts are chosen. Other weights show theirs in the logits. Throws format.
void check_small_weights(const Checkpoint& checkpoint, std::span<const weights::WeightSpec> specs) {
    const weights::Reader reader(checkpoint);
    for (const weights::WeightSpec& weight : specs) {
        if (weight.use != weights::Use::vector && static_cast<Role>(weight.role) != Role::router) continue;
        const std::string why = weights::why_not_finite(reader, weight);
        if (!why.empty()) fail_file(Reason::value, "the model's weights are not finite: {}", why);
    }
}

// Returns how many layers of a shard have a feed-forward that every row takes.
uint64_t dense_layers_of(const runtime::Shard& shard, const Config& config) {
    return config.shared_ff > 0 || config.dense_ff > 0 ? static_cast<uint64_t>(shard.n_layer) : 0;
}

// Throws unsupported if a device lacks the activation, before weights are read.
void check_activation(const runtime::Placement& placement, const Config& config) {
    for (const runtime::Shard& shard : placement.shards())
        if (!shard.backend->activates(config.activation))
            fail_on_device(shard.backend->name(), Status::unsupported,
                           "does not compute the activation of this model (alpha {}, limit {})",
                           config.activation.alpha, config.activation.limit);
}

}  // namespace

Model::Model(const std::string& path, std::shared_ptr<const backend::Backend> backend,
             const OpenOptions& options, const Logger& log)
    : Model(
          path,
          [&](const Config& config, std::span<const weights::WeightSpec>) {
              return runtime::Placement({{std::move(backend), config.n_layer}});
          },
          options, log) {}

Model::Model(const std::string& path, const Place& place, const OpenOptions& options, const Logger& log)
    : checkpoint_(Checkpoint::open(path, log)) {
    throw_if_cancelled(options.cancel, "loading");
    config_ = read_config(checkpoint_, log);
    specs_ = bind_weights(checkpoint_, config_, log);
    text_.emplace(checkpoint_, path, config_.n_vocab, options.text, log);
    const ExpertUses uses = profile_of(options.expert_profile, config_, log);
    placement_ = checked(place(config_, specs_), config_);
    try {
        load_weights(options, log);
        make_pools(options.expert_moves, uses, log);
        make_forward_pass();
        if (net_.test) net_.test(net_, placement_);
    } catch (...) {
        if (net_.processes) net_.processes->abandon(current_error());  // they would wait for this process
        throw;
    }
}

void Model::make_forward_pass() {
    if (!placement_.has_ranks()) {
        forward_.emplace(placement_.stages(), architecture_of(config_, weights_.front()), pools_);
        return;
    }
    std::vector<std::unique_ptr<runtime::RankPass>> ranks;
    for (size_t r = 0; r < rank_specs_.size(); ++r) {
        const runtime::Shard& shard = placement_.shards()[r];
        ranks.push_back(std::make_unique<runtime::RankPass>(
            shard, architecture_of(rank_configs_[r], weights_[r], shard.share), net_.links[r]));
    }
    forward_.emplace(std::move(ranks), net_.leader.get());
}

// Divides the weights among the ranks of this process.
void Model::narrow_weights() {
    for (const runtime::Shard& shard : placement_.shards()) {
        rank_specs_.push_back(weights_of(shard, specs_, config_));
        rank_configs_.push_back(config_of(shard.share, config_));
        parts_.push_back(part_of(shard, rank_specs_.back()));
    }
}

// Returns null if no device computes on host memory.
const backend::HostDevice* Model::host_backend() const noexcept {
    for (const weights::DeviceWeights& part : parts_)
        if (part.host != nullptr) return part.host;
    return nullptr;
}

int64_t Model::prompt_rows() const noexcept {
    return placement_.prompt_rows() > 0 ? placement_.prompt_rows() : runtime::k_default_step_rows;
}

void Model::load_weights(const OpenOptions& options, const Logger& log) {
    const std::span<const runtime::Shard> shards = placement_.shards();
    check_activation(placement_, config_);
    if (placement_.has_ranks()) {
        narrow_weights();
    } else {
        parts_ = parts_of(placement_, specs_);
    }
    for (size_t s = 0; s < shards.size(); ++s)
        if (parts_[s].host == nullptr)
            parts_[s].table_bytes =
                (shards[s].expert_layers.size() * static_cast<uint64_t>(config_.n_expert) +
                 dense_layers_of(shards[s], config_)) *
                sizeof(backend::ExpertPlace);
    const bool is_mapped = map_files(checkpoint_, options, log);
    const auto residence =
        is_mapped || !options.packed_file.empty() ? options.residence : checkpoint::HostStorage::owned;
    const std::vector<weights::Storage> storage =
        weights::choose_storage(parts_, residence, options.packed_file, log);
    fingerprint_ = model::fingerprint(checkpoint_, config_);
    if (placement_.has_ranks()) net_ = options.connect(config_, placement_, fingerprint_);
    check_small_weights(checkpoint_, specs_);
    weights::PlaceOptions place = {.packed_file = options.packed_file,
                                   .origin = weights::origin_of(fingerprint_, checkpoint_.files()),
                                   .prefault = options.prefault,
                                   .expand = options.expand,
                                   .host = options.loader ? options.loader.get() : host_backend(),
                                   .progress = options.progress,
                                   .cancel = options.cancel};
    for (const runtime::Shard& shard : shards) place.part_hashes.push_back(hash_of(shard));
    placed_ = weights::place(parts_, storage, place, checkpoint_, log);
    for (size_t i = 0; i < parts_.size(); ++i) weight_bytes_.push_back(placed_[i].bytes(parts_[i]));
    if (placement_.has_ranks()) {
        for (size_t r = 0; r < parts_.size(); ++r)
            weights_.push_back(join({&parts_[r], 1}, {&placed_[r], 1}, config_));
        mark_absent_experts();
    } else {
        weights_.push_back(join(parts_, placed_, config_));
    }
    make_expert_tables();
}

// Gives each rank's experts their number in the model: stacks end with the rank's last expert. Backends on host memory learn from a
// table which of them are absent.
void Model::mark_absent_experts() {
    const auto n_expert = static_cast<size_t>(config_.n_expert);
    absent_.resize(parts_.size() * n_expert);
    for (size_t r = 0; r < parts_.size(); ++r) {
        const runtime::Shard& shard = placement_.shards()[r];
        uint8_t* const absent = absent_.data() + r * n_expert;
        for (size_t e = 0; e < n_expert; ++e)
            absent[e] = shard.share.has_expert(static_cast<int64_t>(e)) ? 0 : 1;
        for (const int64_t layer : shard.expert_layers) {
            if (!config_.has_experts(layer)) continue;
            backend::ExpertWeights& experts = weights_[r].layers[layer].experts;
            for (backend::ExpertStack* stack : {&experts.gate, &experts.up, &experts.down}) {
                stack->expert.resize(n_expert);
                if (!stack->scale.empty()) stack->scale.resize(n_expert, 1.0F);
                if (!stack->blocks.empty()) stack->blocks.resize(n_expert, stack->blocks.back());
            }
            experts.is_on_device = absent;
        }
    }
}

// Writes the tables by which devices find the experts of a layer. They are in the device's memory, after the weights.
void Model::make_expert_tables() {
    for (size_t s = 0; s < parts_.size(); ++s) {
        const runtime::Shard& shard = placement_.shards()[s];
        if (parts_[s].table_bytes == 0) continue;
        backend::Memory& memory = *placed_[s].device;
        std::byte* table = memory.data() + memory.size() - parts_[s].table_bytes;
        const auto make_table = [&](backend::ExpertWeights& experts) {
            const std::vector<backend::ExpertPlace> places = backend::places_of(experts);
            const std::span<const std::byte> bytes = std::as_bytes(std::span(places));
            shard.backend->write(table, bytes.data(), bytes.size());
            experts.places =
                reinterpret_cast<const backend::ExpertPlace*>(std::exchange(table, table + bytes.size()));
        };
        std::vector<LayerWeights>& layers = weights_[placement_.has_ranks() ? s : 0].layers;
        for (const int64_t layer : shard.expert_layers)
            if (config_.has_experts(layer)) make_table(layers[layer].experts);
        if (dense_layers_of(shard, config_) == 0) continue;
        for (int64_t i = 0; i < shard.n_layer; ++i) make_table(layers[shard.first_layer + i].dense);
    }
}

void Model::make_pools(runtime::ExpertMoves moves, const ExpertUses& uses, const Logger& log) {
    reader_.emplace(checkpoint_);
    std::vector<std::span<const std::byte>> host_memory;
    for (const weights::PlacedWeights& placed : placed_)
        for (const Buffer& buffer : placed.host) host_memory.emplace_back(buffer.data(), buffer.size());
    if (placement_.has_ranks()) return;
    pools_ =
        make_expert_pools(placement_, {specs_, weights_.front(), *reader_, host_memory}, moves, uses, log);
    for (size_t s = 0; s < pools_.size(); ++s) {
        if (pools_[s] == nullptr) continue;
        weight_bytes_[s].total += pools_[s]->device_bytes();
        weight_bytes_[s].experts += pools_[s]->device_bytes();
    }
}

std::vector<WeightBlock> Model::host_blocks() const {
    std::vector<WeightBlock> blocks;
    for (size_t p = 0; p < parts_.size(); ++p) {
        const weights::PlacedWeights& placed = placed_[p];
        for (size_t b = 0; b < placed.host.size(); ++b) {
            const bool is_common = b + 1 == placed.host.size();
            blocks.push_back({{placed.host[b].data(), placed.host[b].size()},
                              true,
                              is_common ? -1 : static_cast<int32_t>(b)});
        }
        if (weight_bytes_[p].is_mapped)
            for (const auto block : weights::mapped_blocks(parts_[p].weights, placed.weights.matrices))
                blocks.push_back({block});
    }
    return blocks;
}

}  // namespace minim::model
