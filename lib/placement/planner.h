// SPDX-License-Identifier: Apache-2.0
// Fills a machine's memories with the layers, KV cache, experts and caches of a model, and chooses what a request leaves open. It asks
// nothing of the request's origin: a plan for a machine that does not exist and the opening of a model are one calculation.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "kv/engine_sizes.h"
#include "placement/bytes.h"
#include "placement/facts.h"
#include "placement/plan.h"
#include "placement/request.h"
#include "placement/rules.h"

namespace minim::placement {

class Planner {
  public:
    // The arguments but the request must outlive it.
    Planner(Request request, const Machine& machine, const ModelBytes& bytes, const Rules& rules);
    // Returns a planner of another request for the same model and machine.
    Planner with(Request request) const { return {std::move(request), machine_, bytes_, rules_}; }

    const Request& request() const noexcept { return request_; }
    const Machine& machine() const noexcept { return machine_; }
    const ModelBytes& bytes() const noexcept { return bytes_; }

    // Returns the best plan for steps of the request's rows, or of k_default_step_rows.
    Plan place() const;
    // Returns the best plan, with the best number of rows if the request leaves it open.
    Plan place_with_best_rows() const;

    // Returns how the KV cache of a plan fits beside its weights.
    kv::Fit fit(const Plan& plan) const;
    // Returns the bytes of a device for weights and KV cache. If it shares the host's memory, those of the host are part of them.
    uint64_t capacity(int64_t device) const;
    // Returns the bytes of weights and KV cache that count against capacity(device).
    uint64_t used_beside(const Plan& plan, int64_t device) const;
    // Return the bytes by which a plan exceeds the memories of the devices, and that of the host.
    uint64_t overflow(const Plan& plan) const;
    uint64_t host_overflow(const Plan& plan) const;

  private:
    // The number of layers of each device. The remaining layers come before them and are on the host.
    using Counts = std::vector<int64_t>;

    int64_t n_rows() const;
    Counts counts_of_shares() const;
    Counts proportional(int64_t n_on_devices) const;
    Plan search() const;
    Plan improved(Plan best, Counts counts) const;
    auto rank(const Plan& plan) const;

    Plan filled(const Counts& counts) const;
    Plan filled(const Counts& counts, bool may_cache) const;
    void add_dense(Plan& plan) const;
    void add_experts(Plan& plan, int64_t layer, int64_t place) const;
    std::vector<int64_t> add_free_experts(Plan& plan, int64_t place, bool may_cache) const;
    void add_caches(Plan& plan, const std::vector<std::vector<int64_t>>& sharing) const;
    void add_cache(Plan& plan, int64_t device, const std::vector<int64_t>& layers, uint64_t limit) const;
    void finish(Plan& plan) const;

    std::optional<int64_t> ruled(int64_t layer) const;
    bool has_experts(int64_t layer) const { return bytes_.config.has_experts(layer); }
    uint64_t room_on(const Plan& plan, int64_t device) const;
    bool may_cache() const;
    uint64_t staging_bytes(const DeviceFacts& device, uint64_t expert_bytes, uint64_t all,
                           uint64_t room) const;

    const Request request_;
    const Machine& machine_;
    const ModelBytes& bytes_;
    const Rules& rules_;
    const int64_t n_layer_;
    const int64_t n_step_rows_;  // of the request, or k_default_step_rows
    const bool rates_are_known_;
    const bool is_unified_;
    std::vector<uint64_t> work_;      // by place
    int64_t n_kv_tokens_ = 0;         // of all sequences, in whole pages
    std::vector<uint64_t> layer_kv_;  // by layer, of all sequences
    std::vector<uint64_t> kv_reads_;  // by layer: what a row reads at the end of the context
};

// Chooses the KV cache, and the context if it is 0, of a request for an engine, which then asks for them. Returns the longest context
// that fits if that of the request does not; else 0.
int64_t choose_kv(Request& request, const Machine& machine, const ModelBytes& bytes, const Rules& rules);
// The same for sizes of which `fit` says how they fit, as numbers of the request.
int64_t choose_kv(Request& request, int64_t n_context_train,
                  const std::function<kv::Fit(const Request&)>& fit);

// Returns the number of layers of each share, in proportion. The counts add up to all layers; a share of 0 gets none.
// Throws invalid unless the shares are finite, not negative and have a positive sum.
std::vector<int64_t> split_layers(int64_t n_layer, std::span<const double> shares);

// Returns whether a device has a cache: some experts of a layer, all of which the host has too.
bool has_cache(const Plan& plan);

inline uint64_t used(const PlannedPlace& place) {
    return place.dense_bytes + place.expert_bytes + place.kv_bytes;
}

}  // namespace minim::placement
