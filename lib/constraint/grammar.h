// SPDX-License-Identifier: Apache-2.0
// The grammar of a constrained answer, as rules over bytes and single tokens: regular expressions that may call other
// rules, also themselves. regex.h, json_schema.h and tool_calls.h make it; automaton.h compiles it so that it can be
// followed byte by byte.
#pragma once

#include <bitset>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace minim::constraint {

using ByteSet = std::bitset<256>;

// A part of a rule; belongs to the grammar that made it. A part may be used in several places.
struct Part {
    int32_t index = -1;
};

struct RuleId {
    int32_t index = -1;
    bool operator==(const RuleId&) const = default;
};

class Grammar {
  public:
    Grammar();

    Part empty() const noexcept { return {0}; }    // the empty text
    Part nothing() const noexcept { return {1}; }  // no text, not even the empty one
    Part text(std::string_view bytes);
    Part byte_in(const ByteSet& bytes);
    Part token(int32_t id);  // one token, whatever its text: for markup
    Part sequence(std::vector<Part> parts);
    Part choice(std::vector<Part> parts);
    // `most` < 0: any number. Throws unsupported for a count beyond k_max_repeats.
    Part repeat(Part part, int64_t least, int64_t most);
    Part optional(Part part) { return repeat(part, 0, 1); }
    Part call(RuleId rule);
    // A graph of states. Its texts are those along the edges from the first state to an accepting one.
    struct Graph {
        struct Edge {
            int32_t from;
            int32_t to;
            Part part;
        };
        std::vector<Edge> edges;
        std::vector<uint8_t> accepts;  // by state
    };
    Part graph(Graph graph);
    // Returns the texts of a graph that enter `least` to `most` of its states after the first (`most` < 0: any number), as a rule of
    // its own. The automaton counts them instead of having copies. No text of an edge may be the beginning of another one
    // that leaves the same state, unless all edges are calls.
    Part counted(Graph graph, int64_t least, int64_t most, std::string name);
    // The same as repeat(), counted if there are many.
    Part counted(Part part, int64_t least, int64_t most, std::string name);

    // Rules have names for messages, and may be called before they are defined.
    RuleId declare(std::string name);
    void define(RuleId rule, Part body) { rules_[rule.index].body = body; }
    RuleId add_rule(std::string name, Part body);
    void start_with(RuleId rule) noexcept { start_ = rule; }
    // Says that the grammar has elements with free names (element_calls.h), whose closing tags are compared apart (open_elements.h).
    void compare_elements() noexcept { compares_elements_ = true; }
    bool compares_elements() const noexcept { return compares_elements_; }
    void start_with(Part answer) { start_with(add_rule("answer", answer)); }

    // For readers of the grammar:
    enum class Kind : uint8_t { empty, nothing, byte, token, sequence, choice, repeat, call, graph };
    struct Expression {
        Kind kind;
        int32_t value = 0;          // byte: index of its set; token: id; call: rule; graph: its index
        int64_t least = 0;          // repeat
        int64_t most = 0;           // repeat; -1: no end
        std::vector<Part> parts{};  // of sequence, choice, repeat
    };
    struct Counts {
        int64_t least;
        int64_t most;  // -1: no end
    };
    struct Rule {
        std::string name;
        Part body;
        std::optional<Counts> counts;  // of the states of the body, a graph
    };
    const Expression& operator[](Part part) const { return expressions_[part.index]; }
    const std::vector<ByteSet>& byte_sets() const noexcept { return byte_sets_; }
    const std::vector<Graph>& graphs() const noexcept { return graphs_; }
    const std::vector<Rule>& rules() const noexcept { return rules_; }
    RuleId start() const noexcept { return start_; }

  private:
    Part add(Expression expression);

    std::vector<Expression> expressions_;
    std::vector<ByteSet> byte_sets_;  // no two alike
    std::unordered_map<ByteSet, int32_t> byte_set_numbers_;
    std::vector<Graph> graphs_;
    std::vector<Rule> rules_;
    RuleId start_;
    bool compares_elements_ = false;
};

// The maximum number of repeats of a part: each repeat is a copy in the automaton.
constexpr int64_t k_max_repeats = 100'000;

// The largest count of Grammar::counted.
constexpr int64_t k_max_counted = 1'000'000'000;

// Returns the grammar that accepts exactly these texts.
Grammar grammar_of_choices(std::span<const std::string_view> texts);

// Returns the index of a set in a list without repeats, and appends the set if it is new.
int32_t place_of(const ByteSet& bytes, std::vector<ByteSet>& sets);

// The bytes from `first` to `last`, both included.
ByteSet byte_range(uint8_t first, uint8_t last);

}  // namespace minim::constraint
