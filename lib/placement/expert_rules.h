// Which experts lie elsewhere than the rest of their layer, as a caller asks for it: of some layers on the processor, or
// wherever the tensors that a pattern names shall be.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "model/stage.h"

namespace minim::placement {

// "exps=cpu" taken apart.
struct OverrideText {
    std::string pattern;
    std::string device;
};

// "PATTERN=DEVICE,PATTERN=DEVICE": a pattern ends at the last = before a comma, so that it may have commas in braces.
// Throws invalid for what is not of that form.
std::vector<OverrideText> parse_overrides(std::string_view text);

// What overrides say of one tensor; of experts also those of which they say nothing.
struct WantedPlace {
    std::string tensor;
    int64_t layer = -1;  // -1: of none
    bool is_of_experts = false;
    std::string device;  // as the text names it; empty: nothing is said
    std::string rule;    // the item of the text, for messages
};
// Throws as layers_with_rules().
std::vector<WantedPlace> wanted_places(std::span<const OverrideText> overrides, int64_t n_layer);

// Tensors whose names a regular expression matches, at any place in them, go to a device. Names are those of GGUF files
// (blk.3.ffn_up_exps.weight), whatever the checkpoint is.
struct Override {
    std::string pattern;
    std::shared_ptr<const backend::Backend> device;
};

struct ExpertRules {
    std::vector<Override> overrides = {};  // the first one that matches a tensor decides
    // For those that no override matches: the experts of the first so many layers, below 0 of the last ones, stay with
    // `host`. More than there are: of all.
    int64_t n_host_layers = 0;
    std::shared_ptr<const backend::Backend> host = nullptr;
};

using OpenDevice = std::function<std::shared_ptr<const backend::Backend>(const std::string& name)>;

// The rules of a text (parse_overrides). "cpu" and "CPU" are `host`; of the other names, those of `devices` are these, and
// open(name) is called once for each further one.
std::vector<Override> make_overrides(std::string_view text,
                                     const std::shared_ptr<const backend::Backend>& host,
                                     std::span<const std::shared_ptr<const backend::Backend>> devices,
                                     const OpenDevice& open);

// For each layer whether the rules say where its experts lie; they lie with their layer where nothing is said. Throws
// invalid for a pattern that is none, or that matches no tensor which those before it have left.
std::vector<bool> layers_with_rules(const ExpertRules& rules, int64_t n_layer);

// Sets where the experts of each stage's layers lie. Throws as layers_with_rules, and unsupported where it would part what
// stays together: anything but experts from its layer, and the matrices of a layer's experts from each other.
void place_experts(const ExpertRules& rules, std::span<model::Stage> stages);

}  // namespace minim::placement
