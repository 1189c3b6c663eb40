// SPDX-License-Identifier: Apache-2.0
#include "placement/rules.h"

#include <algorithm>

#include "base/error.h"
#include "base/format_text.h"
#include "constraint/automaton.h"
#include "constraint/positions.h"
#include "constraint/regex.h"
#include "model/tensor_names.h"

namespace minim::placement {
namespace {

namespace names = model::names;

bool has_part(const model::Config& config, int64_t layer, names::Part part) {
    if (part == names::Part::router || part == names::Part::router_bias) return config.has_experts(layer);
    return part <= names::k_last_common_part || config.is_sparse(layer);
}

std::vector<RuledTensor> all_tensors(const model::Config& config) {
    std::vector<RuledTensor> all = {{names::embedding()[0], -1, false}};
    for (int64_t layer = 0; layer < config.n_layer; ++layer) {
        const bool has_experts = config.has_experts(layer);
        for (auto part = names::Part::attn_norm; part <= names::Part::index_k_norm;
             part = static_cast<names::Part>(static_cast<int>(part) + 1))
            if (has_part(config, layer, part)) all.push_back({names::layer(layer, part)[0], layer, false});
        for (const auto part : {names::ExpertPart::gate, names::ExpertPart::up, names::ExpertPart::down}) {
            if (!has_experts) all.push_back({names::dense(layer, part)[0], layer, false});
            if (has_experts && config.shared_ff > 0)
                all.push_back({names::shared_expert(layer, part)[0], layer, false});
        }
        for (const std::string_view part : {"gate", "up", "down"})
            if (has_experts) all.push_back({names::stacked_expert(layer, part), layer, true});
    }
    all.push_back({names::output_norm()[0], config.n_layer, false});
    all.push_back({names::output()[0], config.n_layer, false});
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

// Sets the places of the tensors that an override matches first. `rule`: the override as messages have it.
void match(const Override& item, const std::string& rule, int64_t place, std::vector<RuledTensor>& tensors) {
    Pattern pattern(item.pattern);
    bool matches = false;
    bool decides = false;
    for (RuledTensor& tensor : tensors) {
        if (!pattern.matches(tensor.name)) continue;
        matches = true;
        if (!tensor.rule.empty()) continue;
        tensor.place = place;
        tensor.rule = rule;
        decides = true;
    }
    if (!matches)
        fail(Status::invalid, "override {}: no tensor has such a name; the names are like {}", rule,
             names::stacked_expert(0, "up"));
    if (!decides)
        fail(Status::invalid, "override {}: earlier overrides place all tensors that it matches", rule);
}

int64_t place_of(const Override& item, const Machine& machine) {
    if (const auto place = machine.place_of(item.device)) return *place;
    std::string known = "cpu";
    for (const DeviceFacts& device : machine.devices) known += ", " + device.name;
    fail(Status::invalid, "override {}={}: device '{}' is not in the plan (there are: {})", item.pattern,
         item.device, item.device, known);
}

}  // namespace

std::vector<Override> parse_overrides(std::string_view text) {
    std::vector<Override> all;
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

Rules read_rules(const Request& request, const Machine& machine, const model::Config& config) {
    const int64_t n_layer = config.n_layer;
    Rules rules = {std::vector<std::optional<int64_t>>(n_layer), all_tensors(config)};
    if (request.overrides)
        for (const Override& item : parse_overrides(*request.overrides)) {
            const std::string device = machine.is_open() ? device_name(item.device) : item.device;
            match(item, format_text("{}={}", item.pattern, device), place_of(item, machine), rules.tensors);
        }
    const int64_t n_host = request.n_host_experts;
    for (RuledTensor& tensor : rules.tensors) {
        if (!tensor.is_of_experts) continue;
        const bool is_host_layer = n_host >= 0 ? tensor.layer < n_host : tensor.layer >= n_layer + n_host;
        if (!tensor.place && is_host_layer) tensor.place = machine.host_place();
        if (tensor.place) rules.experts[tensor.layer] = tensor.place;
    }
    return rules;
}

void check_rules(const Rules& rules, const Machine& machine, std::span<const int64_t> places) {
    const auto n_layer = std::ssize(places);
    int64_t layer = -1;
    int64_t first = 0;  // of the experts of the layer
    for (const RuledTensor& tensor : rules.tensors) {
        const int64_t own = places[std::clamp<int64_t>(tensor.layer, 0, n_layer - 1)];
        int64_t place = tensor.place.value_or(own);
        if (place == machine.host_place() && machine.is_host(own)) place = own;
        if (!tensor.is_of_experts) {
            // Plans of machines that are not open do not care for embedding and head.
            const bool counts = machine.is_open() || (tensor.layer >= 0 && tensor.layer < n_layer);
            if (place != own && counts)
                fail(Status::unsupported,
                     "override {}: {} stays on {} with its layer; only experts can be offloaded", tensor.rule,
                     tensor.name, machine.name_of(own));
            continue;
        }
        if (tensor.layer != layer) first = place;
        layer = tensor.layer;
        if (place != first)
            fail(Status::unsupported,
                 "experts of layer {} would be on {} and on {} ({}); a layer's stay together", layer,
                 machine.name_of(first), machine.name_of(place), tensor.name);
    }
}

}  // namespace minim::placement
