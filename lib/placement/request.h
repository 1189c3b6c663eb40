// SPDX-License-Identifier: Apache-2.0
// What a caller asks for when a model is planned or opened, and what it leaves open. The structs of the C interface are turned into this
// one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "backend/kv_view.h"
#include "format/format.h"
#include "placement/facts.h"
#include "placement/parallel.h"

namespace minim::placement {

// The cache size that stands for all the room beside the context.
inline constexpr uint64_t k_cache_all_room = UINT64_MAX;

struct Request {
    // Shares of the layers, one for each device; if they add up to the number of layers, they are counts. Empty: chosen.
    std::vector<double> shares = {};
    // The number of layers on the devices, the last ones of the model. -1: all; a plan takes as many as have room.
    int64_t n_device_layers = -1;
    std::optional<std::string> overrides = {};  // parse_overrides()
    // The number of layers whose experts stay on the host if no override matches them: the first n layers, or the last -n if the
    // number is negative. A number above the number of layers stands for all layers.
    int64_t n_host_experts = 0;

    // The tokens of one sequence whose KV cache must fit on the devices, with work space. Experts that no rule places and that have no
    // room beside it go to the host:
    //
    //   without a cache   those of the first layers; those of the last layers stay
    //   with a cache      all those of the device, and the room becomes a cache of them
    //
    // If the host has no room for all experts of a device that has a cache, it gets only those that do not fit, and there is no cache.
    //
    // 0: none, and no room is checked; but for an engine the longest context that fits is chosen, and for a cache of all room of a
    // model that is opened: 8,192 tokens, or the model's maximum if that is less. A shorter one, down to 2,048, if then all experts
    // fit beside it; down to 256 if there is no room for more, or if the cache would get less room than the context.
    int64_t n_context = 0;
    int64_t n_sequences = 1;  // concurrent sequences; each reserves the context, but for n_kv_tokens
    int64_t n_kv_tokens = 0;  // tokens of a KV cache that the sequences share; 0: each reserves the context
    // The sequences are the requests of an engine: n_kv_tokens, and n_context if it is 0, are chosen (kv/engine_sizes.h).
    bool for_engine = false;
    int64_t n_rows = 0;  // of a prompt step; 0: chosen, at least k_default_step_rows
    Format k_format = backend::k_default_kv_format;
    Format v_format = backend::k_default_kv_format;
    // Bytes on all devices together for caches of experts, in proportion to the layers that share them. 0: no cache. A size is not
    // checked without a context, and all experts that no rule places then go to the host.
    uint64_t cache_bytes = 0;
    bool caches_host_experts = false;  // experts that rules place on the host may be cached as well
    // The devices share the layers instead of having layers each, if this asks for more than one rank.
    ParallelRequest parallel = {};
    LinkFacts link = {};  // between the ranks; what is not known is assumed

    // The rest is for models that are opened (devices.h).
    std::string host = {};          // "cpu" or "reference"; empty: cpu
    bool locks_memory = false;      // of the host
    bool is_deterministic = false;  // devices compute with Arithmetic::deterministic
    bool may_be_missing = false;    // devices that are missing are left out, with a warning
    std::optional<std::vector<DeviceBudget>> devices = {};  // none: all layers are on the host
    std::vector<uint64_t> budgets = {};                     // of each device, in bytes, 0: none; or empty

    // Returns whether devices must have room for a context.
    bool needs_room() const noexcept { return n_context > 0 || for_engine; }
};

}  // namespace minim::placement
