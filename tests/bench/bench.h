// SPDX-License-Identifier: Apache-2.0
// A model on its devices, its tests, and what the tests measure: prompts and generation, each repetition between two
// measurements of the bandwidth.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/read_bandwidth.h"
#include "base/thread_pool.h"
#include "device_bandwidth.h"
#include "kernels.h"
#include "kv/sequence.h"
#include "model/model.h"
#include "options.h"
#include "placement/backends.h"
#include "placement/devices.h"
#include "placement/place.h"
#include "report.h"
#include "routing.h"
#include "runtime/forward_pass.h"
#include "runtime/placement.h"
#include "runtime/step_space.h"
#include "synthetic.h"
#include "timed_backend.h"

namespace minim::bench {

// The tests with one thread count. The options must outlive it.
class Bench {
  public:
    // Throws what opening devices and models throws.
    Bench(const Options& options, int32_t n_threads);

    const model::Config& config() const { return *config_; }
    const model::Weights& weights() const { return *weights_; }
    const runtime::Placement& placement() const { return *placement_; }
    double load_seconds() const { return load_seconds_; }

    // Times the evaluation of n tokens of one text, in steps of n_ubatch.
    Result prompt(int64_t n, int64_t depth, int64_t n_ubatch);
    // Times the generation of n tokens of each of n_parallel texts; a step has one token of each text.
    Result generation(int64_t n, int64_t depth, int64_t n_ubatch, int64_t n_parallel);
    // Returns the times of a step's operations; the step has one token of each of n_parallel texts. Throws unsupported
    // if layers or experts lie on several devices.
    std::vector<KernelTime> kernels(int64_t depth, int64_t n_parallel);
    // Returns how the devices' steps were done since the model was opened.
    backend::StepCounts step_counts() const;

  private:
    std::shared_ptr<const backend::Backend> open_device(const std::string& name) const;
    placement::Machine open_devices(const placement::Request& request);
    model::Model::Place place();
    void open_model();
    void open_references();
    double measure_bandwidth() const;
    std::optional<runtime::ExpertPoolState> cache_state() const;  // of all devices

    backend::KvLayout kv_layout() const;
    std::vector<kv::Sequence> make_texts(int64_t n, int64_t n_context) const;
    void fill_depth(const std::vector<kv::Sequence>& texts, runtime::StepSpace& space, int64_t depth,
                    int64_t n_ubatch);
    runtime::StepRow next_row(const kv::Sequence& text, int64_t position, bool wants_logits);
    Result new_result(const std::string& test, int64_t depth, int64_t n_ubatch) const;
    void read(const kv::Sequence& text, runtime::StepSpace& space, int64_t first, int64_t count,
              int64_t n_step);
    void generate(const std::vector<kv::Sequence>& texts, runtime::StepSpace& space, int64_t first,
                  int64_t count);
    void step(std::span<const runtime::StepRow> rows, runtime::StepSpace& space, int64_t n_wanted);
    template <typename Work>
    void repeat(Result& result, int64_t n_tokens, const Work& work);

    const Options& options_;
    const placement::Threads threads_;
    const std::shared_ptr<const ThreadPool> pool_;
    std::vector<std::shared_ptr<TimedBackend>> timed_;  // the devices, if operations are timed
    std::unique_ptr<const SyntheticModel> synthetic_;
    std::optional<Router> router_;
    std::optional<model::Model> model_;
    const runtime::Placement* placement_ = nullptr;
    std::span<const std::unique_ptr<runtime::ExpertPool>> pools_;  // a stage; null: none
    const model::Config* config_ = nullptr;
    const model::Weights* weights_ = nullptr;
    std::optional<runtime::ForwardPass> forward_;
    std::optional<ReadBandwidth> host_bandwidth_;
    std::vector<std::unique_ptr<DeviceBandwidth>> device_bandwidth_;  // a shard; null: the host's
    int64_t n_drawn_ = 0;  // tokens, of all tests: none is repeated before all of the vocabulary were taken
    std::vector<float> logits_;
    std::vector<TopKQuery> queries_;
    double load_seconds_ = 0.0;
};

}  // namespace minim::bench
