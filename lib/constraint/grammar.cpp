// SPDX-License-Identifier: Apache-2.0
#include "constraint/grammar.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace minim::constraint {

Grammar::Grammar() {
    add({.kind = Kind::empty});
    add({.kind = Kind::nothing});
}

Part Grammar::add(Expression expression) {
    expressions_.push_back(std::move(expression));
    return {static_cast<int32_t>(expressions_.size() - 1)};
}

Part Grammar::text(std::string_view bytes) {
    std::vector<Part> parts;
    parts.reserve(bytes.size());
    for (const char byte : bytes) parts.push_back(byte_in(ByteSet().set(static_cast<uint8_t>(byte))));
    return sequence(std::move(parts));
}

Part Grammar::byte_in(const ByteSet& bytes) {
    if (bytes.none()) return nothing();
    const auto [known, is_new] =
        byte_set_numbers_.try_emplace(bytes, static_cast<int32_t>(byte_sets_.size()));
    if (is_new) byte_sets_.push_back(bytes);
    return add({.kind = Kind::byte, .value = known->second});
}

Part Grammar::token(int32_t id) {
    return add({.kind = Kind::token, .value = id});
}

Part Grammar::sequence(std::vector<Part> parts) {
    if (parts.empty()) return empty();
    if (parts.size() == 1) return parts[0];
    return add({.kind = Kind::sequence, .parts = std::move(parts)});
}

Part Grammar::choice(std::vector<Part> parts) {
    if (parts.empty()) return nothing();
    if (parts.size() == 1) return parts[0];
    return add({.kind = Kind::choice, .parts = std::move(parts)});
}

Part Grammar::repeat(Part part, int64_t least, int64_t most) {
    const int64_t count = std::max(least, most);
    if (count > k_max_repeats) {
        fail(Status::unsupported, "a count of {} in a constraint; at most {} can be kept", count,
             k_max_repeats);
    }
    if (most == 0) return empty();
    if (least == 1 && most == 1) return part;
    return add({.kind = Kind::repeat, .least = least, .most = most, .parts = {part}});
}

Part Grammar::call(RuleId rule) {
    return add({.kind = Kind::call, .value = rule.index});
}

Part Grammar::graph(Graph graph) {
    graphs_.push_back(std::move(graph));
    return add({.kind = Kind::graph, .value = static_cast<int32_t>(graphs_.size() - 1)});
}

Part Grammar::counted(Graph graph, int64_t least, int64_t most, std::string name) {
    const int64_t count = std::max(least, most);
    if (count > k_max_counted) {
        fail(Status::unsupported, "'{}' has a count of {} in a constraint; at most {} can be kept", name,
             count, k_max_counted);
    }
    if (most >= 0 && most < least) return nothing();
    const RuleId rule = add_rule(std::move(name), this->graph(std::move(graph)));
    rules_.back().counts = Counts{least, most};
    return call(rule);
}

Part Grammar::counted(Part part, int64_t least, int64_t most, std::string name) {
    constexpr int64_t k_few = 16;  // copies are faster
    if (std::max(least, most) <= k_few) return repeat(part, least, most);
    if ((*this)[part].kind != Kind::call) part = call(add_rule(name, part));
    Graph graph;
    graph.accepts = {1};
    graph.edges = {{0, 0, part}};
    return counted(std::move(graph), least, most, std::move(name));
}

RuleId Grammar::declare(std::string name) {
    rules_.push_back({std::move(name), nothing(), std::nullopt});
    return {static_cast<int32_t>(rules_.size() - 1)};
}

RuleId Grammar::add_rule(std::string name, Part body) {
    const RuleId rule = declare(std::move(name));
    define(rule, body);
    return rule;
}

Grammar grammar_of_choices(std::span<const std::string_view> texts) {
    Grammar grammar;
    std::vector<Part> parts;
    for (const std::string_view text : texts) parts.push_back(grammar.text(text));
    grammar.start_with(grammar.choice(std::move(parts)));
    return grammar;
}

int32_t place_of(const ByteSet& bytes, std::vector<ByteSet>& sets) {
    auto place = std::ranges::find(sets, bytes);
    if (place == sets.end()) place = sets.insert(place, bytes);
    return static_cast<int32_t>(place - sets.begin());
}

ByteSet byte_range(uint8_t first, uint8_t last) {
    ByteSet bytes;
    for (size_t byte = first; byte <= last; ++byte) bytes.set(byte);
    return bytes;
}

}  // namespace minim::constraint
