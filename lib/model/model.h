// SPDX-License-Identifier: Apache-2.0
// A loaded model: configuration, tokenizer, chat template and weights on backends. Immutable, shared by sessions and
// threads.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/host_device.h"
#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "constraint/token_trie.h"
#include "model/architecture.h"
#include "model/chat_templates.h"
#include "model/config.h"
#include "model/dry_breakers.h"
#include "model/expert_profile.h"
#include "model/recommended_sampling.h"
#include "model/weights.h"
#include "runtime/expert_pool.h"
#include "runtime/forward_pass.h"
#include "runtime/placement.h"
#include "tokenizer/tokenizer.h"
#include "weights/place.h"
#include "weights/reader.h"

namespace minim::model {

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
    std::string chat_template = {};          // text, in place of the checkpoint's templates; empty: none
    bool engine_tokenizer = false;  // split text as llama.cpp does, for token-exact comparisons with it
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
    const tokenizer::Tokenizer& tokenizer() const noexcept { return *tokenizer_; }
    // Returns the sizes of a step, without its rows and context.
    backend::StepLimits shape() const { return shape_of(config_); }
    const runtime::Placement& placement() const noexcept { return placement_; }
    // Returns the backend of the first layers.
    const backend::Backend& backend() const noexcept { return *placement_.stages().front().backend; }
    const runtime::ForwardPass& forward() const noexcept { return *forward_; }
    const Weights& weights() const noexcept { return weights_; }
    std::span<const weights::WeightSpec> weight_specs() const noexcept { return specs_; }
    // Returns the number of parameters, without scales and zero points.
    int64_t n_parameters() const noexcept { return n_parameters_; }
    std::span<const weights::WeightBytes> weight_bytes() const noexcept { return weight_bytes_; }  // a shard
    std::vector<WeightBlock> host_blocks() const;
    const backend::HostDevice* host_backend() const noexcept;  // null if no layer is on the host
    uint64_t fingerprint() const noexcept { return fingerprint_; }
    // Returns one pool for each stage; null if the stage shares no experts with the host.
    std::span<const std::unique_ptr<runtime::ExpertPool>> expert_pools() const noexcept { return pools_; }

    // Returns the rows of a step with a prompt, if the caller does not state them: those that the placement chose.
    int64_t prompt_rows() const noexcept;

    // Returns one entry for each logit; 1 for padding of the vocabulary, which is not a token.
    std::span<const uint8_t> unused_rows() const noexcept { return unused_rows_; }
    // Returns the first id of the added tokens, which are at the end of the vocabulary: ids from here on are markup.
    int32_t first_added_token() const noexcept { return first_added_token_; }

    // Returns the tree of the vocabulary, for constraints. It is made at the first call: few models need one.
    std::shared_ptr<const constraint::TokenTrie> token_trie() const;

    const ChatTemplates& chat_templates() const noexcept { return chat_templates_; }
    const RecommendedSampling& recommended_sampling() const noexcept { return recommended_sampling_; }

    // Returns the tokens of a text that ends repetitions for DRY sampling.
    std::shared_ptr<const sampling::DryBreaker> dry_breaker(const std::string& text) const {
        return dry_breakers_.find(*tokenizer_, text);
    }

  private:
    bool map_files(const OpenOptions& options, const Logger& log);
    void load_weights(const OpenOptions& options, const Logger& log);
    void check_small_weights() const;
    void make_expert_tables();
    void make_pools(runtime::ExpertMoves moves, const ExpertUses& uses, const Logger& log);

    checkpoint::Checkpoint checkpoint_;
    Config config_;
    std::optional<tokenizer::Tokenizer> tokenizer_;
    std::vector<uint8_t> unused_rows_;
    int32_t first_added_token_ = 0;
    ChatTemplates chat_templates_;
    RecommendedSampling recommended_sampling_;
    uint64_t fingerprint_ = 0;
    runtime::Placement placement_;
    std::vector<weights::WeightSpec> specs_;
    int64_t n_parameters_ = 0;
    std::vector<weights::Part> parts_;                // a shard
    std::vector<weights::PlacedPart> placed_;         // a shard
    std::vector<weights::WeightBytes> weight_bytes_;  // a shard
    Weights weights_;
    std::optional<weights::Reader> reader_;                    // of pools
    std::vector<std::unique_ptr<runtime::ExpertPool>> pools_;  // a stage
    std::optional<runtime::ForwardPass> forward_;
    mutable DryBreakers dry_breakers_;
    mutable std::mutex token_trie_mutex_;
    mutable std::shared_ptr<const constraint::TokenTrie> token_trie_;
};

}  // namespace minim::model
