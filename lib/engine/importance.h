// SPDX-License-Identifier: Apache-2.0
// Importance data of a model, collected from what sessions evaluate, together with data of files.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "checkpoint/importance_file.h"
#include "model/model.h"
#include "runtime/observe.h"

namespace minim::engine {

struct ImportanceParams {
    std::string dataset = {};  // name of the text; "": none
    int64_t chunk_size = 512;  // tokens of a chunk
    bool with_head = false;    // also of the output head
    uint64_t text_hash = 0;    // of the text; 0: unknown
};

// Any thread.
class Importance {
  public:
    // Collects for sessions of this model. Throws invalid, unsupported as ForwardPass::refuse_observing(), and out_of_memory.
    Importance(std::shared_ptr<const model::Model> model, const ImportanceParams& params);
    // Has the data of a file, and collects nothing. chunk_size: of an older file without counts; 0: unknown.
    explicit Importance(checkpoint::ImportanceData data, int64_t chunk_size);

    // Returns the sums for the sessions of the model; null: it collects nothing.
    const std::shared_ptr<runtime::ObservedInputs>& inputs() const noexcept { return inputs_; }
    const model::Model* model() const noexcept { return model_.get(); }

    // Returns everything so far. Sums of steps that run meanwhile are there in part.
    checkpoint::ImportanceData data() const;

    // Adds the data of another one. Throws as checkpoint::merge_importance().
    void merge(const Importance& other);

    void save(const std::string& path, checkpoint::ImportanceForm form) const;

  private:
    checkpoint::ImportanceData collected() const;

    const std::shared_ptr<const model::Model> model_;
    const ImportanceParams params_;
    std::shared_ptr<runtime::ObservedInputs> inputs_;
    mutable std::mutex mutex_;
    checkpoint::ImportanceData read_;  // of files
};

// Returns the data as JSON: {"format", "datasets", "chunks", "chunk_size", "text_hash", "model_hash", "tensors"}, where a tensor is
// {"name", "columns", "matrices", "without_data", "mean", "max", "share_90", "rows": {"least", "median", "most", "below_16"}}. Values are
// normalised: sums over counts. share_90: the share of a tensor's inputs that have 90 % of their sum. Unknown values are null.
std::string to_json(const checkpoint::ImportanceData& data);

}  // namespace minim::engine
