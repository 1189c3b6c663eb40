// SPDX-License-Identifier: Apache-2.0
// A loaded model: configuration, text (text.h), and weights on backends with the forward pass over them. Immutable, shared by
// sessions and threads.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/group.h"
#include "backend/host_device.h"
#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "model/architecture.h"
#include "model/config.h"
#include "model/expert_profile.h"
#include "model/text.h"
#include "model/weights.h"
#include "ranks/leader.h"
#include "ranks/processes.h"
#include "runtime/expert_pool.h"
#include "runtime/forward_pass.h"
#include "runtime/placement.h"
#include "runtime/rank_links.h"
#include "weights/place.h"
#include "weights/reader.h"

namespace minim::model {

// What connects the ranks of a model, if its placement has ranks. Members end in the opposite order.
struct RankNet {
    std::shared_ptr<ranks::Processes> processes;                  // null: all ranks are in this process
    std::vector<std::unique_ptr<runtime::Transport>> transports;  // that the links use
    // Of each rank of this process, if its devices are connected directly.
    std::vector<std::unique_ptr<backend::GroupChannel>> channels;
    std::vector<std::unique_ptr<backend::GroupLink>> direct;
    std::vector<runtime::RankLinks> links;  // of each rank of this process
    // Of the process that plans the steps; null: there are no other processes, or this is one of them.
    std::shared_ptr<ranks::Leader> leader;
    std::vector<std::vector<runtime::Shard>> other_shards;  // by process, from process 1 on; without backends
    // Checks, with all ranks together, that exchanges work. Called once the weights are loaded.
    std::function<void(const RankNet& net, const runtime::Placement& placement)> test;
    std::vector<std::string> names;  // of all ranks: "rank 1 (cuda:1)", "rank 1 (cpu on HOST)"

    // Throws the error that the ranks' work has ended with, if it has.
    void require() const {
        for (const auto& transport : transports) transport->throw_if_abandoned();
    }
};

struct OpenOptions {
    std::optional<checkpoint::HostStorage>
        residence;            // of weights in host memory; empty: weights/choose_storage.h
    std::string packed_file;  // file with the packed weights, created if needed; empty: none
    weights::Expand expand = weights::Expand::automatic;  // of weights that are copied or packed
    checkpoint::Progress progress;
    const CancelToken* cancel = nullptr;
    // The backend whose threads fill devices. Null: a stage's backend on the host, or else only the caller's thread.
    std::shared_ptr<const backend::HostDevice> loader = nullptr;
    bool prefault = false;  // prefault mapped weights before the model is ready
    runtime::ExpertMoves expert_moves =
        runtime::ExpertMoves::reproducible;  // for stages with room for a cache of experts
    std::string expert_profile = {};         // read if it exists (expert_profile.h); empty: none
    TextOptions text = {};
    // Connects the ranks of a placement that has them, before weights are loaded. `fingerprint`: of the model.
    std::function<RankNet(const Config& config, const runtime::Placement& placement, uint64_t fingerprint)>
        connect = {};
};

// Weights in host memory, read into it or mapped.
struct WeightBlock {
    std::span<const std::byte> bytes;
    bool is_placed = false;  // if memory is placed by node: on `node` of the plan, or, for -1, on all in turn
    int32_t node = -1;
};

class Model {
  public:
    Model(const std::string& path, std::shared_ptr<const backend::Backend> backend,
          const OpenOptions& options, const Logger& log);
    // Loads a model onto several devices; the placement must have exactly the layers of the model. A device with its own
    // memory always gets copies of its weights.
    using Place =
        std::function<runtime::Placement(const Config& config, std::span<const weights::WeightSpec> weights)>;
    Model(const std::string& path, const Place& place, const OpenOptions& options, const Logger& log);
    Model(const Model&) = delete;
    Model& operator=(const Model&) = delete;

    const Config& config() const noexcept { return config_; }
    const checkpoint::Checkpoint& checkpoint() const noexcept { return checkpoint_; }
    const Text& text() const noexcept { return *text_; }
    // Returns the sizes of a step, without its rows and context.
    backend::StepLimits shape() const { return shape_of(config_); }
    const runtime::Placement& placement() const noexcept { return placement_; }
    // Returns the backend of the first layers.
    const backend::Backend& backend() const noexcept { return *placement_.stages().front().backend; }
    const runtime::ForwardPass& forward() const noexcept { return *forward_; }
    // Returns the weights of all layers, or those of the first rank.
    const Weights& weights() const noexcept { return weights_.front(); }
    const RankNet& net() const noexcept { return net_; }
    // Returns the number of this process; 0 plans the steps of all.
    int32_t process() const noexcept { return net_.processes ? net_.processes->process() : 0; }
    std::span<const weights::WeightSpec> weight_specs() const noexcept { return specs_; }
    std::span<const weights::WeightBytes> weight_bytes() const noexcept { return weight_bytes_; }  // a shard
    std::vector<WeightBlock> host_blocks() const;
    const backend::HostDevice* host_backend() const noexcept;  // null if no layer is on the host
    uint64_t fingerprint() const noexcept { return fingerprint_; }
    // Returns one pool for each stage; null if the stage shares no experts with the host.
    std::span<const std::unique_ptr<runtime::ExpertPool>> expert_pools() const noexcept { return pools_; }

    // Returns the rows of a step with a prompt, if the caller does not state them: those that the placement chose.
    int64_t prompt_rows() const noexcept;

  private:
    void load_weights(const OpenOptions& options, const Logger& log);
    void narrow_weights();
    void mark_absent_experts();
    void make_expert_tables();
    void make_forward_pass();
    void make_pools(runtime::ExpertMoves moves, const ExpertUses& uses, const Logger& log);

    checkpoint::Checkpoint checkpoint_;
    Config config_;
    std::optional<Text> text_;
    uint64_t fingerprint_ = 0;
    runtime::Placement placement_;
    std::vector<weights::WeightSpec> specs_;
    RankNet net_;
    std::vector<std::vector<weights::WeightSpec>> rank_specs_;  // a rank; empty: the placement has no ranks
    std::vector<Config> rank_configs_;                          // like rank_specs_
    std::vector<uint8_t> absent_;                     // [rank, n_expert]: 1 for experts of other ranks
    std::vector<weights::DeviceWeights> parts_;       // a shard
    std::vector<weights::PlacedWeights> placed_;      // a shard
    std::vector<weights::WeightBytes> weight_bytes_;  // a shard
    std::vector<Weights> weights_;                    // a rank; one if the placement has no ranks
    std::optional<weights::Reader> reader_;           // of pools
    std::vector<std::unique_ptr<runtime::ExpertPool>> pools_;  // a stage
    std::optional<runtime::ForwardPass> forward_;
};

}  // namespace minim::model
