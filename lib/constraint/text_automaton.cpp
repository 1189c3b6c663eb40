// SPDX-License-Identifier: Apache-2.0
#include "constraint/text_automaton.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "base/utf8.h"

namespace minim::constraint {
namespace {

void require_room(const TextAutomaton& automaton, std::string_view where) {
    if (automaton.n_states() < k_max_text_states) return;
    fail(Status::unsupported, "{}: the keywords of this text need an automaton of more than {} states", where,
         k_max_text_states);
}

// Returns the automaton with a class for every character, and with a state for the texts that had no state.
TextAutomaton completed(const TextAutomaton& automaton) {
    TextAutomaton all = automaton;
    CodePoints taken;
    for (const CodePoints& set : automaton.classes) taken.add(set);
    CodePoints others = taken.complement();
    const size_t n_old = automaton.classes.size();
    if (!others.ranges().empty()) all.classes.push_back(std::move(others));
    const size_t n_classes = all.classes.size();
    const auto sink = static_cast<int32_t>(automaton.n_states());
    all.accepts.push_back(0);
    all.next.assign(all.accepts.size() * n_classes, sink);
    for (size_t state = 0; state < automaton.n_states(); ++state) {
        for (size_t c = 0; c < n_old; ++c) {
            const int32_t to = automaton.step(static_cast<int32_t>(state), c);
            if (to != TextAutomaton::k_none) all.connect(static_cast<int32_t>(state), c, to);
        }
    }
    return all;
}

}  // namespace

int32_t TextAutomaton::add_state(bool may_end) {
    accepts.push_back(may_end ? 1 : 0);
    next.resize(next.size() + classes.size(), k_none);
    return static_cast<int32_t>(accepts.size() - 1);
}

bool TextAutomaton::has(std::string_view utf8) const {
    int32_t state = 0;
    while (!utf8.empty() && state != k_none) {
        const Utf8Step character = next_utf8(utf8);
        if (character.state != Utf8State::complete) return false;
        utf8.remove_prefix(character.length);
        const auto of = std::ranges::find_if(
            classes, [&](const CodePoints& set) { return set.contains(character.code_point); });
        state = of == classes.end() ? k_none : step(state, of - classes.begin());
    }
    return state != k_none && accepts[state] != 0;
}

bool TextAutomaton::is_empty() const {
    TextAutomaton copy = *this;
    drop_dead_states(copy);
    return copy.n_states() == 1 && copy.accepts[0] == 0;
}

TextAutomaton both(const TextAutomaton& a, const TextAutomaton& b, std::string_view where) {
    struct Common {
        size_t a;
        size_t b;
    };
    TextAutomaton product;
    std::vector<Common> common;  // by class of the product
    for (size_t i = 0; i < a.classes.size(); ++i) {
        for (size_t j = 0; j < b.classes.size(); ++j) {
            CodePoints set = a.classes[i].both(b.classes[j]);
            if (set.ranges().empty()) continue;
            product.classes.push_back(std::move(set));
            common.push_back({i, j});
        }
    }
    std::unordered_map<uint64_t, int32_t> numbers;
    std::vector<std::pair<int32_t, int32_t>> pairs;
    const auto number_of = [&](int32_t state_a, int32_t state_b) {
        const uint64_t key = uint64_t{static_cast<uint32_t>(state_a)} << 32 | static_cast<uint32_t>(state_b);
        const auto [place, is_new] = numbers.try_emplace(key, static_cast<int32_t>(pairs.size()));
        if (is_new) {
            require_room(product, where);
            product.add_state(a.accepts[state_a] != 0 && b.accepts[state_b] != 0);
            pairs.emplace_back(state_a, state_b);
        }
        return place->second;
    };
    number_of(0, 0);
    for (size_t state = 0; state < pairs.size(); ++state) {
        for (size_t c = 0; c < common.size(); ++c) {
            const int32_t to_a = a.step(pairs[state].first, common[c].a);
            const int32_t to_b = b.step(pairs[state].second, common[c].b);
            if (to_a == TextAutomaton::k_none || to_b == TextAutomaton::k_none) continue;
            const int32_t to = number_of(to_a, to_b);
            product.connect(static_cast<int32_t>(state), c, to);
        }
    }
    drop_dead_states(product);
    return product;
}

TextAutomaton other_texts(const TextAutomaton& texts) {
    TextAutomaton others = completed(texts);
    for (uint8_t& accepts : others.accepts) accepts = accepts == 0 ? 1 : 0;
    drop_dead_states(others);
    return others;
}

TextAutomaton texts_of_length(int64_t least, int64_t most) {
    TextAutomaton automaton;
    automaton.classes = {CodePoints::all()};
    const int64_t n_counted = std::max(least, most);
    for (int64_t n = 0; n <= n_counted; ++n) {
        const int32_t state = automaton.add_state(n >= least && (most < 0 || n <= most));
        if (n > 0) automaton.connect(state - 1, 0, state);
    }
    if (most < 0) automaton.connect(static_cast<int32_t>(n_counted), 0, static_cast<int32_t>(n_counted));
    return automaton;
}

// State i: the last i characters are the closer's first i, and no more are (Knuth, Morris, Pratt).
TextAutomaton texts_without(std::string_view closer) {
    std::vector<CodePoints> sets;
    for (const char c : closer) sets.push_back(CodePoints().add(static_cast<uint8_t>(c)));
    TextAutomaton automaton;
    automaton.classes = character_classes(sets);
    const auto n_classes = automaton.classes.size();
    for (size_t i = 0; i < closer.size(); ++i) automaton.add_state(true);
    int32_t border = 0;  // the longest proper prefix of the closer that the text may end with as well
    for (size_t i = 0; i < closer.size(); ++i) {
        const auto state = static_cast<int32_t>(i);
        size_t expected = 0;
        for (size_t c = 0; c < n_classes; ++c) {
            automaton.connect(state, c, i == 0 ? 0 : automaton.step(border, c));
            if (automaton.classes[c].contains(static_cast<uint8_t>(closer[i]))) expected = c;
        }
        const int32_t new_border = automaton.step(state, expected);
        automaton.connect(state, expected, i + 1 == closer.size() ? TextAutomaton::k_none : state + 1);
        if (i > 0) border = new_border;
    }
    return automaton;
}

TextAutomaton listed_texts(const std::vector<std::string>& texts) {
    std::vector<std::u32string> characters;
    std::set<char32_t> known;
    for (std::string_view text : texts) {
        std::u32string points;
        for (; !text.empty(); text.remove_prefix(next_utf8(text).length))
            points += next_utf8(text).code_point;
        known.insert(points.begin(), points.end());
        characters.push_back(std::move(points));
    }
    TextAutomaton automaton;
    std::map<char32_t, size_t> class_of;
    for (const char32_t c : known) {
        class_of[c] = automaton.classes.size();
        automaton.classes.push_back(CodePoints().add(c));
    }
    automaton.add_state(false);
    for (const std::u32string& text : characters) {
        int32_t state = 0;
        for (const char32_t c : text) {
            int32_t to = automaton.step(state, class_of[c]);
            if (to == TextAutomaton::k_none) {
                to = automaton.add_state(false);
                automaton.connect(state, class_of[c], to);
            }
            state = to;
        }
        automaton.accepts[state] = 1;
    }
    return automaton;
}

void drop_dead_states(TextAutomaton& automaton) {
    const size_t n_states = automaton.n_states();
    const size_t n_classes = automaton.classes.size();
    std::vector<std::vector<int32_t>> before(n_states);
    for (size_t state = 0; state < n_states; ++state) {
        for (size_t c = 0; c < n_classes; ++c) {
            const int32_t to = automaton.step(static_cast<int32_t>(state), c);
            if (to != TextAutomaton::k_none) before[to].push_back(static_cast<int32_t>(state));
        }
    }
    std::vector<uint8_t> can_end = automaton.accepts;
    std::vector<size_t> pending;
    for (size_t state = 0; state < n_states; ++state)
        if (can_end[state] != 0) pending.push_back(state);
    while (!pending.empty()) {
        const size_t state = pending.back();
        pending.pop_back();
        for (const int32_t from : before[state]) {
            if (can_end[from] != 0) continue;
            can_end[from] = 1;
            pending.push_back(from);
        }
    }
    TextAutomaton kept;
    kept.classes = automaton.classes;
    std::vector<int32_t> new_number(n_states, TextAutomaton::k_none);
    for (size_t state = 0; state < n_states; ++state)
        if (state == 0 || can_end[state] != 0)
            new_number[state] = kept.add_state(automaton.accepts[state] != 0);
    for (size_t state = 0; state < n_states; ++state) {
        if (new_number[state] == TextAutomaton::k_none) continue;
        for (size_t c = 0; c < n_classes; ++c) {
            const int32_t to = automaton.step(static_cast<int32_t>(state), c);
            if (to == TextAutomaton::k_none || can_end[to] == 0) continue;
            kept.connect(new_number[state], c, new_number[to]);
        }
    }
    automaton = std::move(kept);
}

// Partition refinement: states are alike until a character leads them to states that are not.
void merge_alike_states(TextAutomaton& automaton) {
    constexpr size_t k_max_states_to_merge = 10'000;  // the time grows with the square of long chains
    const size_t n_states = automaton.n_states();
    const size_t n_classes = automaton.classes.size();
    if (n_states > k_max_states_to_merge) return;
    std::vector<int32_t> group(automaton.accepts.begin(), automaton.accepts.end());
    for (size_t n_groups = 0;;) {
        std::unordered_map<std::vector<int32_t>, int32_t, VectorHash<int32_t>> groups;
        std::vector<int32_t> refined(n_states);
        std::vector<int32_t> transitions(n_classes + 1);
        for (size_t state = 0; state < n_states; ++state) {
            transitions[n_classes] = group[state];
            for (size_t c = 0; c < n_classes; ++c) {
                const int32_t to = automaton.step(static_cast<int32_t>(state), c);
                transitions[c] = to == TextAutomaton::k_none ? to : group[to];
            }
            refined[state] =
                groups.try_emplace(transitions, static_cast<int32_t>(groups.size())).first->second;
        }
        group = std::move(refined);
        if (groups.size() == n_groups) break;
        n_groups = groups.size();
    }
    // The start's group is the first, as groups are numbered as they are met.
    TextAutomaton merged;
    merged.classes = std::move(automaton.classes);
    for (size_t state = 0; state < n_states; ++state) {
        if (group[state] != static_cast<int32_t>(merged.n_states())) continue;
        merged.add_state(automaton.accepts[state] != 0);
    }
    for (size_t state = 0; state < n_states; ++state) {
        for (size_t c = 0; c < n_classes; ++c) {
            const int32_t to = automaton.next[state * n_classes + c];
            if (to != TextAutomaton::k_none) merged.connect(group[state], c, group[to]);
        }
    }
    automaton = std::move(merged);
}

std::vector<CodePoints> character_classes(const std::vector<CodePoints>& sets) {
    // Sets begin and end at these characters.
    std::map<char32_t, std::vector<size_t>> changes;
    for (size_t i = 0; i < sets.size(); ++i) {
        for (const CodePoints::Range& range : sets[i].ranges()) {
            changes[range.first].push_back(i);
            changes[range.last + 1].push_back(i);
        }
    }
    std::map<std::set<size_t>, CodePoints> classes;
    std::set<size_t> current;
    char32_t first = 0;
    for (const auto& [at, changed] : changes) {
        if (at > first) classes[current].add(first, at - 1);
        first = at;
        for (const size_t i : changed)
            if (!current.insert(i).second) current.erase(i);
    }
    if (first <= 0x10FFFF) classes[current].add(first, 0x10FFFF);
    std::vector<CodePoints> all;
    for (auto& [members, set] : classes) {
        CodePoints characters = set.both(CodePoints::all());
        if (!characters.ranges().empty()) all.push_back(std::move(characters));
    }
    return all;
}

// A set with several ranges beyond ASCII becomes a rule of its own, so that the automaton of the text has one state a
// character.
Spelling utf8_spelling(Grammar& grammar) {
    constexpr size_t k_max_ranges = 2;  // everything beyond ASCII has two, as surrogates are left out
    auto rules = std::make_shared<std::map<std::vector<char32_t>, RuleId>>();
    return [&grammar, rules](const CodePoints& set) {
        const CodePoints beyond = set.both(CodePoints().add(0x80, 0x10FFFF));
        if (beyond.ranges().size() < k_max_ranges) return utf8(grammar, set);
        std::vector<char32_t> key;
        for (const CodePoints::Range& range : beyond.ranges()) {
            key.push_back(range.first);
            key.push_back(range.last);
        }
        auto known = rules->find(key);
        if (known == rules->end())
            known =
                rules->emplace(std::move(key), grammar.add_rule("character", utf8(grammar, beyond))).first;
        return grammar.choice(
            {utf8(grammar, set.both(CodePoints().add(0, 0x7F))), grammar.call(known->second)});
    };
}

Grammar::Graph graph_of(const TextAutomaton& automaton, const Spelling& spelling) {
    std::unordered_map<std::vector<int32_t>, Part, VectorHash<int32_t>> spelled;  // by classes
    Grammar::Graph graph;
    for (size_t state = 0; state < automaton.n_states(); ++state) {
        std::map<int32_t, std::vector<int32_t>> classes_to;
        for (size_t c = 0; c < automaton.classes.size(); ++c) {
            const int32_t to = automaton.step(static_cast<int32_t>(state), c);
            if (to != TextAutomaton::k_none) classes_to[to].push_back(static_cast<int32_t>(c));
        }
        for (const auto& [to, classes] : classes_to) {
            auto known = spelled.find(classes);
            if (known == spelled.end()) {
                CodePoints set;
                for (const int32_t c : classes) set.add(automaton.classes[c]);
                known = spelled.emplace(classes, spelling(set)).first;
            }
            graph.edges.push_back({static_cast<int32_t>(state), to, known->second});
        }
    }
    graph.accepts = automaton.accepts;
    return graph;
}

Part part_of(Grammar& grammar, const TextAutomaton& automaton, const Spelling& spelling) {
    return grammar.graph(graph_of(automaton, spelling));
}

}  // namespace minim::constraint
