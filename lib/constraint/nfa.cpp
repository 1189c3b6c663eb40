#include "constraint/nfa.h"

#include <algorithm>
#include <array>
#include <map>
#include <unordered_map>

#include "base/error.h"

namespace minim::constraint {
namespace {

constexpr size_t k_most_states = 1'000'000;

using Kind = Grammar::Kind;

class Builder {
  public:
    explicit Builder(const Grammar& grammar) : grammar_(grammar) {
        nfa_.byte_sets = grammar.byte_sets();
        find_empty_rules();
    }

    Nfa build() {
        for (const Grammar::Rule& rule : grammar_.rules()) {
            rule_ = &rule;
            nfa_.rule_starts.push_back(build(rule.body, add({.kind = NfaState::Kind::accept})));
        }
        return std::move(nfa_);
    }

  private:
    int32_t add(const NfaState& state) {
        if (nfa_.states.size() >= k_most_states) {
            fail(Status::unsupported, "the constraint's part '{}' needs an automaton of more than {} states",
                 rule_->name, k_most_states);
        }
        nfa_.states.push_back(state);
        return static_cast<int32_t>(nfa_.states.size() - 1);
    }

    int32_t split(int32_t out, int32_t other) {
        return add({.kind = NfaState::Kind::split, .out = out, .other = other});
    }

    // The state from which the part's texts lead to `next`. A part that stands in several places before the
    // same state is built once.
    int32_t build(Part part, int32_t next) {
        const Kind kind = grammar_[part].kind;
        if (kind == Kind::empty || kind == Kind::byte || kind == Kind::token) return build_new(part, next);
        const uint64_t key = uint64_t{static_cast<uint32_t>(part.index)} << 32 | static_cast<uint32_t>(next);
        const auto known = built_.find(key);
        if (known != built_.end()) return known->second;
        const int32_t start = build_new(part, next);
        built_.emplace(key, start);
        return start;
    }

    int32_t build_new(Part part, int32_t next) {
        const Grammar::Expression& e = grammar_[part];
        switch (e.kind) {
            case Kind::empty:
                return next;
            case Kind::nothing:
                return split(-1, -1);
            case Kind::byte:
                return add({.kind = NfaState::Kind::byte, .value = e.value, .out = next});
            case Kind::token:
                return add({.kind = NfaState::Kind::token, .value = e.value, .out = next});
            case Kind::call: {
                const int32_t call = add({.kind = NfaState::Kind::call, .value = e.value, .out = next});
                return rule_may_be_empty_[static_cast<size_t>(e.value)] ? split(call, next) : call;
            }
            case Kind::sequence: {
                int32_t start = next;
                for (size_t i = e.parts.size(); i-- > 0;) start = build(e.parts[i], start);
                return start;
            }
            case Kind::choice: {
                int32_t start = -1;
                for (size_t i = e.parts.size(); i-- > 0;) start = split(build(e.parts[i], next), start);
                return start;
            }
            case Kind::repeat:
                return build_repeat(e, next);
            case Kind::text_without:
                return build_text_without(e, next);
        }
        return next;
    }

    int32_t build_repeat(const Grammar::Expression& e, int32_t next) {
        int32_t start = next;
        if (e.most < 0) {
            start = split(-1, next);
            const int32_t body = build(e.parts[0], start);
            nfa_.states[static_cast<size_t>(start)].out = body;
        } else {
            for (int64_t i = e.least; i < e.most; ++i) start = split(build(e.parts[0], start), next);
        }
        for (int64_t i = 0; i < e.least; ++i) start = build(e.parts[0], start);
        return start;
    }

    // State i: the last i bytes are the closer's first i, and no more are (Knuth, Morris, Pratt).
    int32_t build_text_without(const Grammar::Expression& e, int32_t next) {
        const std::string& closer = e.text;
        std::vector<int32_t> starts;
        for (size_t i = 0; i < closer.size(); ++i) starts.push_back(split(-1, next));
        const int32_t beyond_ascii = build(e.parts[0], starts[0]);
        size_t border = 0;  // the longest proper prefix of the closer that the text may end with as well
        std::vector<std::array<int32_t, 128>> after(closer.size());
        for (size_t i = 0; i < closer.size(); ++i) {
            for (size_t byte = 0; byte < 128; ++byte) after[i][byte] = i == 0 ? 0 : after[border][byte];
            const auto expected = static_cast<size_t>(closer[i]);
            const auto new_border = static_cast<size_t>(after[i][expected]);
            after[i][expected] = static_cast<int32_t>(i + 1);
            if (i > 0) border = new_border;
        }
        for (size_t i = 0; i < closer.size(); ++i) {
            std::map<int32_t, ByteSet> bytes_to;
            for (size_t byte = 0; byte < 128; ++byte) bytes_to[after[i][byte]].set(byte);
            int32_t ways = beyond_ascii;
            for (const auto& [target, bytes] : bytes_to) {
                if (target == static_cast<int32_t>(closer.size())) continue;
                const int32_t way = add({.kind = NfaState::Kind::byte,
                                         .value = place_of(bytes, nfa_.byte_sets),
                                         .out = starts[static_cast<size_t>(target)]});
                ways = split(way, ways);
            }
            nfa_.states[static_cast<size_t>(starts[i])].out = ways;
        }
        return starts[0];
    }

    void find_empty_rules() {
        rule_may_be_empty_.assign(grammar_.rules().size(), false);
        bool has_changed = true;
        while (has_changed) {
            has_changed = false;
            for (size_t rule = 0; rule < grammar_.rules().size(); ++rule) {
                if (rule_may_be_empty_[rule] || !may_be_empty(grammar_.rules()[rule].body)) continue;
                rule_may_be_empty_[rule] = true;
                has_changed = true;
            }
        }
    }

    bool may_be_empty(Part part) const {
        const Grammar::Expression& e = grammar_[part];
        const auto is_empty = [this](Part p) { return may_be_empty(p); };
        switch (e.kind) {
            case Kind::empty:
            case Kind::text_without:
                return true;
            case Kind::nothing:
            case Kind::byte:
            case Kind::token:
                return false;
            case Kind::call:
                return rule_may_be_empty_[static_cast<size_t>(e.value)];
            case Kind::sequence:
                return std::ranges::all_of(e.parts, is_empty);
            case Kind::choice:
                return std::ranges::any_of(e.parts, is_empty);
            case Kind::repeat:
                return e.least == 0 || may_be_empty(e.parts[0]);
        }
        return false;
    }

    const Grammar& grammar_;
    Nfa nfa_;
    const Grammar::Rule* rule_ = nullptr;  // being built
    std::vector<bool> rule_may_be_empty_;
    std::unordered_map<uint64_t, int32_t> built_;  // by part and the state behind it
};

}  // namespace

Nfa make_nfa(const Grammar& grammar) {
    return Builder(grammar).build();
}

}  // namespace minim::constraint
