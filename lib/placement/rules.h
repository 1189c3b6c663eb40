// SPDX-License-Identifier: Apache-2.0
// The caller's rules for offloaded experts: the experts of some layers stay on the host, and experts whose tensors match a pattern go
// to the named device.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/config.h"
#include "placement/facts.h"
#include "placement/request.h"

namespace minim::placement {

// A parsed "exps=cpu".
struct Override {
    std::string pattern;
    std::string device;
};

// Parses "PATTERN=DEVICE,PATTERN=DEVICE". A pattern ends at the last = before a comma, so that it may have commas in
// braces. Throws invalid for any other form.
std::vector<Override> parse_overrides(std::string_view text);

// A tensor by its GGUF name (blk.3.ffn_up_exps.weight), which stands for every kind of checkpoint.
struct RuledTensor {
    std::string name;
    int64_t layer;  // -1: before all layers, n_layer: behind them
    bool is_of_experts;
    std::optional<int64_t> place = {};  // none: that of its layer
    std::string rule = {};              // the override that decides; empty: none does
};

struct Rules {
    std::vector<std::optional<int64_t>> experts;  // by layer: the place of its experts, if a rule says it
    std::vector<RuledTensor> tensors;
};

// Reads the overrides and n_host_experts of a request. An override puts tensors on a device if its regular expression is found in their
// names; the first one that matches decides. Throws invalid for a bad pattern, for a pattern that only matches tensors that earlier
// patterns match, or none, and for an unknown device.
Rules read_rules(const Request& request, const Machine& machine, const model::Config& config);

// Throws unsupported if a rule would move a tensor that is not of experts, or only some of the experts' matrices of a layer. `places`: of
// the layers.
void check_rules(const Rules& rules, const Machine& machine, std::span<const int64_t> places);

}  // namespace minim::placement
