// SPDX-License-Identifier: Apache-2.0
// The caller's rules for offloaded experts: the experts of some layers stay on the CPU, and experts whose tensors
// match a pattern go to the named device.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "runtime/placement.h"

namespace minim::placement {

// A parsed "exps=cpu".
struct OverrideText {
    std::string pattern;
    std::string device;
};

// Parses "PATTERN=DEVICE,PATTERN=DEVICE". A pattern ends at the last = before a comma, so that it may have commas in
// braces. Throws invalid for any other form.
std::vector<OverrideText> parse_overrides(std::string_view text);

// The device that the overrides give one tensor. Tensors of experts are listed even if no override matches them.
struct WantedPlace {
    std::string tensor;
    int64_t layer = -1;  // -1: the tensor belongs to no layer
    bool is_of_experts = false;
    std::string device;  // as named in the text; empty: no override matches
    std::string rule;    // the item of the text, for messages
};
// Returns the places of the tensors. Throws as expert_devices().
std::vector<WantedPlace> wanted_places(std::span<const OverrideText> overrides, int64_t n_layer);

// Puts tensors on a device if a regular expression is found in their names. The names are the GGUF names
// (blk.3.ffn_up_exps.weight), for every kind of checkpoint.
struct Override {
    std::string pattern;
    std::shared_ptr<const backend::Backend> device;
};

struct ExpertRules {
    std::vector<Override> overrides = {};  // the first one that matches a tensor decides
    // The number of layers whose experts stay on `host` if no override matches them: the first n layers, or the last -n if the
    // number is negative. A number above the number of layers stands for all layers.
    int64_t n_host_layers = 0;
    std::shared_ptr<const backend::Backend> host = nullptr;
};

// Returns whether the experts of a layer stay on the host by ExpertRules::n_host_layers.
bool is_host_layer(int64_t n_host_layers, int64_t layer, int64_t n_layer) noexcept;

using OpenDevice = std::function<std::shared_ptr<const backend::Backend>(const std::string& name)>;

// Returns the rules of a text (parse_overrides). "cpu" and "CPU" stand for `host`. Other names are looked up in `devices`;
// open(name) is called once for each name that is not found.
std::vector<Override> make_overrides(std::string_view text,
                                     const std::shared_ptr<const backend::Backend>& host,
                                     std::span<const std::shared_ptr<const backend::Backend>> devices,
                                     const OpenDevice& open);

// Returns for each layer the device on which a rule places its experts; null if no rule does. Throws invalid for a bad
// pattern, and for a pattern that only matches tensors that earlier patterns match, or none.
std::vector<std::shared_ptr<const backend::Backend>> expert_devices(const ExpertRules& rules,
                                                                    int64_t n_layer);

// Sets the devices of the experts of each stage's layers. Throws as expert_devices, and unsupported if a rule
// would move a tensor that is not of experts, or only some of the experts' matrices of a layer.
void place_experts(const ExpertRules& rules, std::span<runtime::Stage> stages);

}  // namespace minim::placement
