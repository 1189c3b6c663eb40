// SPDX-License-Identifier: Apache-2.0
#include "placement/expert_rules.h"

#include <algorithm>
#include <array>
#include <map>
#include <string>

#include "base/error.h"
#include "base/format_text.h"
#include "constraint/automaton.h"
#include "constraint/positions.h"
#include "constraint/regex.h"
#include "model/tensor_names.h"
#include "runtime/placement.h"

namespace minim::placement {
namespace {

using runtime::Stage;
namespace names = model::names;

constexpr std::array<std::string_view, 3> k_expert_parts = {"gate", "up", "down"};

// A tensor of the model by its GGUF name.
struct Named {
    std::string name;
    size_t stage;
    int64_t layer_of_stage;  // -1: the tensor belongs to no layer
    bool is_of_experts;
    int64_t decides = -1;  // the first rule that matches, -1: none
};

void add_layer(std::vector<Named>& all, size_t stage, int64_t layer_of_stage, int64_t layer) {
    for (auto part = names::Part::attn_norm; part <= names::Part::router_bias;
         part = static_cast<names::Part>(static_cast<int>(part) + 1))
        all.push_back({names::layer(layer, part)[0], stage, layer_of_stage, false});
    for (const std::string_view part : k_expert_parts)
        all.push_back({names::stacked_expert(layer, part), stage, layer_of_stage, true});
}

std::vector<Named> all_names(std::span<const Stage> stages) {
    std::vector<Named> all;
    all.push_back({names::embedding()[0], 0, -1, false});
    int64_t layer = 0;
    for (size_t s = 0; s < stages.size(); ++s)
        for (int64_t i = 0; i < stages[s].n_layer; ++i) add_layer(all, s, i, layer++);
    all.push_back({names::output_norm()[0], stages.size() - 1, -1, false});
    all.push_back({names::output()[0], stages.size() - 1, -1, false});
    return all;
}

class Pattern {
  public:
    explicit Pattern(std::string_view text)
        : automaton_(
              constraint::make_automaton(constraint::grammar_of_regex(text, constraint::Match::anywhere), 1)),
          positions_(automaton_),
          start_(positions_.start_of(automaton_.start_rule)) {}

    bool matches(std::string_view name) {
        const int32_t end = positions_.read(start_, name);
        return end != constraint::Positions::k_dead && positions_.may_end(end);
    }

  private:
    const constraint::Automaton automaton_;
    constraint::Positions positions_;
    int32_t start_;
};

std::string text_of(const OverrideText& rule) {
    return format_text("{}={}", rule.pattern, rule.device);
}

std::vector<OverrideText> texts_of(std::span<const Override> overrides) {
    std::vector<OverrideText> texts;
    for (const Override& rule : overrides) texts.push_back({rule.pattern, std::string(rule.device->name())});
    return texts;
}

void match(std::span<const OverrideText> overrides, std::span<Named> all) {
    for (size_t r = 0; r < overrides.size(); ++r) {
        const OverrideText& rule = overrides[r];
        Pattern pattern(rule.pattern);
        bool matches = false;
        bool decides = false;
        for (Named& tensor : all) {
            if (!pattern.matches(tensor.name)) continue;
            matches = true;
            if (tensor.decides >= 0) continue;
            tensor.decides = static_cast<int64_t>(r);
            decides = true;
        }
        if (!matches)
            fail(Status::invalid, "override {}: no tensor has such a name; the names are like {}",
                 text_of(rule), names::stacked_expert(0, "up"));
        if (!decides)
            fail(Status::invalid, "override {}: earlier overrides place all tensors that it matches",
                 text_of(rule));
    }
}

// Returns whether a rule places a tensor of the experts of a layer.
bool is_pinned(const ExpertRules& rules, const Named& tensor, int64_t layer, int64_t n_layer) {
    if (tensor.decides >= 0) return true;
    return is_host_layer(rules.n_host_layers, layer, n_layer);
}

// Returns the device of a tensor that a rule places.
const std::shared_ptr<const backend::Backend>& wanted_device(const ExpertRules& rules, const Named& tensor) {
    return tensor.decides >= 0 ? rules.overrides[tensor.decides].device : rules.host;
}

}  // namespace

bool is_host_layer(int64_t n_host_layers, int64_t layer, int64_t n_layer) noexcept {
    return n_host_layers >= 0 ? layer < n_host_layers : layer >= n_layer + n_host_layers;
}

std::vector<OverrideText> parse_overrides(std::string_view text) {
    std::vector<OverrideText> all;
    for (size_t begin = 0; begin <= text.size();) {
        // The name of a device has no comma, so the first comma after an = ends the item.
        const size_t first_equals = text.find('=', begin);
        const size_t end = first_equals == std::string_view::npos
                               ? text.size()
                               : std::min(text.find(',', first_equals), text.size());
        const std::string_view item = text.substr(begin, end - begin);
        const size_t equals = item.rfind('=');
        if (equals == std::string_view::npos || equals == 0 || equals + 1 == item.size())
            fail(Status::invalid, "override '{}' is not of the form PATTERN=DEVICE", item);
        all.push_back({std::string(item.substr(0, equals)), std::string(item.substr(equals + 1))});
        begin = end + 1;
    }
    return all;
}

std::vector<Override> make_overrides(std::string_view text,
                                     const std::shared_ptr<const backend::Backend>& host,
                                     std::span<const std::shared_ptr<const backend::Backend>> devices,
                                     const OpenDevice& open) {
    std::map<std::string, std::shared_ptr<const backend::Backend>> named = {{"cpu", host}, {"CPU", host}};
    for (const auto& device : devices) named.emplace(device->name(), device);
    std::vector<Override> overrides;
    for (const OverrideText& rule : parse_overrides(text)) {
        if (!named.contains(rule.device)) named[rule.device] = open(rule.device);
        overrides.push_back({rule.pattern, named[rule.device]});
    }
    return overrides;
}

std::vector<std::shared_ptr<const backend::Backend>> expert_devices(const ExpertRules& rules,
                                                                    int64_t n_layer) {
    const Stage whole = {nullptr, n_layer};
    std::vector<Named> all = all_names({&whole, 1});
    match(texts_of(rules.overrides), all);
    std::vector<std::shared_ptr<const backend::Backend>> devices(n_layer);
    for (const Named& tensor : all) {
        if (!tensor.is_of_experts || !is_pinned(rules, tensor, tensor.layer_of_stage, n_layer)) continue;
        devices[tensor.layer_of_stage] = wanted_device(rules, tensor);
    }
    return devices;
}

void place_experts(const ExpertRules& rules, std::span<Stage> stages) {
    std::vector<Named> all = all_names(stages);
    match(texts_of(rules.overrides), all);
    int64_t n_layer = 0;
    for (Stage& stage : stages) {
        stage.experts.assign(stage.n_layer, nullptr);
        n_layer += stage.n_layer;
    }
    // A layer on the CPU keeps its experts there.
    const auto device_for = [&](const Named& tensor, int64_t layer) {
        const auto& own = stages[tensor.stage].backend;
        const auto& wanted = wanted_device(rules, tensor);
        const bool stays = !is_pinned(rules, tensor, layer, n_layer);
        return stays || (wanted == rules.host && stages[tensor.stage].is_on_host()) ? own : wanted;
    };
    int64_t layer = -1;
    for (const Named& tensor : all) {
        const auto& own = stages[tensor.stage].backend;
        if (!tensor.is_of_experts) {
            if (tensor.decides >= 0 && device_for(tensor, 0) != own)
                fail(Status::unsupported,
                     "override {}: {} stays on {} with its layer; only experts can be offloaded",
                     text_of(texts_of(rules.overrides)[tensor.decides]), tensor.name, own->name());
            continue;
        }
        auto& place = stages[tensor.stage].experts[tensor.layer_of_stage];
        if (place == nullptr) ++layer;
        const auto device = device_for(tensor, layer);
        if (place != nullptr && place != device)
            fail(Status::unsupported,
                 "experts of layer {} would be on {} and on {} ({}); a layer's stay together", layer,
                 place->name(), device->name(), tensor.name);
        place = device;
    }
}

std::vector<WantedPlace> wanted_places(std::span<const OverrideText> overrides, int64_t n_layer) {
    const Stage whole = {nullptr, n_layer};
    std::vector<Named> all = all_names({&whole, 1});
    match(overrides, all);
    std::vector<WantedPlace> wanted;
    for (const Named& tensor : all) {
        if (tensor.decides < 0 && !tensor.is_of_experts) continue;
        WantedPlace place = {tensor.name, tensor.layer_of_stage, tensor.is_of_experts, "", ""};
        if (tensor.decides >= 0) {
            const OverrideText& rule = overrides[tensor.decides];
            place.device = rule.device;
            place.rule = text_of(rule);
        }
        wanted.push_back(std::move(place));
    }
    return wanted;
}

}  // namespace minim::placement
