// SPDX-License-Identifier: Apache-2.0
#include "constraint/regex.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/hash.h"
#include "constraint/character_sets.h"
#include "constraint/regex_nfa.h"

namespace minim::constraint {
namespace {

constexpr size_t k_max_work = size_t{1} << 22;  // states looked at

// The subset construction, over threads. A thread is an NFA state with the obligations (`lookaheads`) that the following
// text must meet. What is known of the preceding text is the same for all threads.
class Determiniser {
  public:
    Determiniser(const RegexNfa& nfa, std::string_view where) : nfa_(nfa), where_(where) {
        automaton_.classes = character_classes(nfa.sets);
        visited_.resize(nfa.states.size(), 0);
        number_of_lookaheads({});
        for (const CodePoints& set : automaton_.classes) {
            const char32_t some = set.ranges()[0].first;
            std::vector<bool> is_in;
            for (const CodePoints& candidate : nfa.sets) is_in.push_back(candidate.contains(some));
            class_is_in_.push_back(std::move(is_in));
            class_is_word_.push_back(word_characters().contains(some));
        }
    }

    TextAutomaton run() {
        Before nothing{.is_start = nfa_.has_text_start, .is_word = false, .behinds = {}};
        look_behind(nothing, nullptr, 0);
        before_ = nothing;
        state_of(closed({{nfa_.start, k_no_lookaheads}}));
        for (size_t state = 0; state < entries_.size(); ++state) {
            for (size_t c = 0; c < automaton_.classes.size(); ++c) {
                const Entry entry = entries_[state];
                const Before last = befores_[entry.before];
                Before now{
                    .is_start = false, .is_word = nfa_.has_word_edge && class_is_word_[c], .behinds = {}};
                look_behind(now, &last, c);
                before_ = std::move(now);
                ThreadList threads = stepped(sets_[entry.set], c);
                if (threads.empty()) continue;
                const int32_t to = state_of(std::move(threads));
                automaton_.connect(static_cast<int32_t>(state), c, to);
            }
        }
        drop_dead_states(automaton_);
        merge_alike_states(automaton_);
        return std::move(automaton_);
    }

  private:
    static constexpr int32_t k_no_lookaheads = 0;
    struct Thread {
        int32_t state;
        int32_t lookaheads;                               // an index into lookahead_lists_
        auto operator<=>(const Thread&) const = default;  // NOLINT(modernize-use-nullptr)
    };
    using ThreadList = std::vector<Thread>;

    // An obligation: the text after a place begins with a text that `set` finds, or does not if `is_negated`.
    struct Lookahead {
        int32_t set;
        int32_t is_negated;
        auto operator<=>(const Lookahead&) const = default;  // NOLINT(modernize-use-nullptr)
    };
    using LookaheadList = std::vector<Lookahead>;

    // The known facts about the text before a place.
    struct Before {
        bool is_start = false;
        bool is_word = false;                             // the last character
        std::vector<ThreadList> behinds;                  // the threads of each lookbehind
        auto operator<=>(const Before&) const = default;  // NOLINT(modernize-use-nullptr)
    };
    struct Entry {
        int32_t before;
        int32_t set;
    };

    void count_work(size_t n) {
        work_ += n;
        if (work_ > k_max_work) fail_too_large();
    }
    [[noreturn]] void fail_too_large() const {
        fail(Status::unsupported, "{}: a regular expression needs too large an automaton ({} states)", where_,
             automaton_.n_states());
    }

    const RegexState& nfa(int32_t state) const { return nfa_.states[state]; }

    int32_t number_of_lookaheads(LookaheadList lookaheads) {
        std::ranges::sort(lookaheads);
        lookaheads.erase(std::unique(lookaheads.begin(), lookaheads.end()), lookaheads.end());
        const auto [place, is_new] =
            lookahead_numbers_.try_emplace(lookaheads, static_cast<int32_t>(lookahead_lists_.size()));
        if (is_new) lookahead_lists_.push_back(std::move(lookaheads));
        return place->second;
    }

    int32_t number_of_set(ThreadList threads) {
        const auto [place, is_new] = set_numbers_.try_emplace(threads, static_cast<int32_t>(sets_.size()));
        if (is_new) sets_.push_back(std::move(threads));
        return place->second;
    }

    int32_t state_of(ThreadList threads) {
        const auto [before, before_is_new] =
            before_numbers_.try_emplace(before_, static_cast<int32_t>(befores_.size()));
        if (before_is_new) befores_.push_back(before_);
        const Entry entry{before->second, number_of_set(std::move(threads))};
        const uint64_t key =
            uint64_t{static_cast<uint32_t>(entry.before)} << 32 | static_cast<uint32_t>(entry.set);
        const auto [place, is_new] = entry_numbers_.try_emplace(key, static_cast<int32_t>(entries_.size()));
        if (is_new) {
            if (entries_.size() >= k_max_text_states) fail_too_large();
            entries_.push_back(entry);
            automaton_.add_state(may_end(entry.set));
        }
        return place->second;
    }

    // Computes the lookbehinds after a character of class `c`, or at the start of the text.
    void look_behind(Before& now, const Before* last, size_t c) {
        for (size_t i = 0; i < nfa_.behinds.size(); ++i) {
            std::swap(before_, now);  // the lookbehinds inside this one are computed already
            ThreadList threads = {{nfa_.behinds[i], k_no_lookaheads}};
            if (last != nullptr) {
                for (const Thread& thread : last->behinds[i]) {
                    const RegexState& state = nfa(thread.state);
                    if (state.kind == RegexState::Kind::characters && class_is_in_[c][state.value])
                        threads.push_back({state.out, thread.lookaheads});
                }
            }
            threads = closed(std::move(threads));
            std::swap(before_, now);
            now.behinds.push_back(std::move(threads));
        }
    }

    bool has_found(const ThreadList& threads) const {
        return std::ranges::any_of(threads, [&](const Thread& thread) {
            return nfa(thread.state).kind == RegexState::Kind::found &&
                   lookahead_lists_[thread.lookaheads].empty();
        });
    }

    // Returns whether the text may end where these threads are.
    bool may_end(int32_t set) const {
        return std::ranges::any_of(sets_[set], [&](const Thread& thread) {
            const RegexState::Kind kind = nfa(thread.state).kind;
            if (kind != RegexState::Kind::accept && kind != RegexState::Kind::found) return false;
            return std::ranges::all_of(lookahead_lists_[thread.lookaheads], [&](const Lookahead& lookahead) {
                return may_end(lookahead.set) != (lookahead.is_negated != 0);
            });
        });
    }

    // Adds the obligation that `threads` find a text from here on. Returns false if it cannot be met.
    bool add_lookahead(LookaheadList& lookaheads, ThreadList threads, bool is_negated) {
        if (has_found(threads)) return !is_negated;
        if (threads.empty()) return is_negated;
        lookaheads.push_back({number_of_set(std::move(threads)), is_negated ? 1 : 0});
        return true;
    }

    // Returns the threads that can be reached without reading.
    ThreadList closed(ThreadList pending) {
        std::set<Thread> seen;  // threads with obligations
        const uint32_t visit = ++visit_;
        ThreadList threads;
        const auto go = [&](int32_t state, int32_t lookaheads) {
            if (state >= 0) pending.push_back({state, lookaheads});
        };
        while (!pending.empty()) {
            const Thread thread = pending.back();
            pending.pop_back();
            if (thread.lookaheads == k_no_lookaheads) {
                // A nested call closes the states of a lookahead meanwhile, but they are not among the states closed here.
                uint32_t& visited = visited_[thread.state];
                if (visited == visit) continue;
                visited = visit;
            } else if (!seen.insert(thread).second) {
                continue;
            }
            count_work(1);
            const RegexState& state = nfa(thread.state);
            switch (state.kind) {
                case RegexState::Kind::split:
                    go(state.other, thread.lookaheads);
                    go(state.out, thread.lookaheads);
                    break;
                case RegexState::Kind::characters:
                case RegexState::Kind::found:
                case RegexState::Kind::accept:
                    threads.push_back(thread);
                    break;
                case RegexState::Kind::text_start:
                    if (before_.is_start) go(state.out, thread.lookaheads);
                    break;
                case RegexState::Kind::behind:
                    if (has_found(before_.behinds[state.value]) != state.is_negated)
                        go(state.out, thread.lookaheads);
                    break;
                case RegexState::Kind::ahead:
                    lookahead(thread, state.value, state.is_negated, go);
                    break;
                case RegexState::Kind::word_edge:
                    lookahead(thread, nfa_.word, before_.is_word != state.is_negated, go);
                    break;
            }
        }
        return without_needless(std::move(threads));
    }

    template <typename Go>
    void lookahead(const Thread& thread, int32_t start, bool is_negated, Go go) {
        LookaheadList lookaheads = lookahead_lists_[thread.lookaheads];
        ThreadList ahead = closed({{start, k_no_lookaheads}});
        if (add_lookahead(lookaheads, std::move(ahead), is_negated))
            go(nfa(thread.state).out, number_of_lookaheads(std::move(lookaheads)));
    }

    // Returns the threads sorted. Leaves out a thread if the obligations of another one in its state are a proper
    // subset of its own.
    ThreadList without_needless(ThreadList threads) const {
        std::ranges::sort(threads);
        threads.erase(std::unique(threads.begin(), threads.end()), threads.end());
        const auto lookaheads = [&](const Thread& thread) -> const LookaheadList& {
            return lookahead_lists_[thread.lookaheads];
        };
        ThreadList kept;
        for (auto begin = threads.begin(); begin != threads.end();) {
            auto end = begin;
            while (end != threads.end() && end->state == begin->state) ++end;
            for (auto it = begin; it != end; ++it) {
                const bool is_needless = std::any_of(begin, end, [&](const Thread& other) {
                    return other != *it && lookaheads(other).size() < lookaheads(*it).size() &&
                           std::ranges::includes(lookaheads(*it), lookaheads(other));
                });
                if (!is_needless) kept.push_back(*it);
            }
            begin = end;
        }
        return kept;
    }

    ThreadList stepped(const ThreadList& from, size_t c) {
        ThreadList threads;
        const ThreadList copy = from;  // sets_ may grow meanwhile
        for (const Thread& thread : copy) {
            const RegexState& state = nfa(thread.state);
            const bool reads = state.kind == RegexState::Kind::characters && class_is_in_[c][state.value];
            if (!reads && state.kind != RegexState::Kind::found) continue;
            const auto lookaheads = stepped_lookaheads(thread.lookaheads, c);
            if (lookaheads) threads.push_back({reads ? state.out : thread.state, *lookaheads});
        }
        return closed(std::move(threads));
    }

    std::optional<int32_t> stepped_lookaheads(int32_t number, size_t c) {
        if (number == k_no_lookaheads) return number;
        const LookaheadList before = lookahead_lists_[number];
        LookaheadList after;
        for (const Lookahead& lookahead : before) {
            if (!add_lookahead(after, stepped(sets_[lookahead.set], c), lookahead.is_negated != 0))
                return std::nullopt;
        }
        return number_of_lookaheads(std::move(after));
    }

    const RegexNfa& nfa_;
    std::string_view where_;
    std::vector<std::vector<bool>> class_is_in_;  // [class][set]
    std::vector<bool> class_is_word_;
    Before before_;  // the text before the place where threads are closed
    size_t work_ = 0;
    std::vector<uint32_t> visited_;  // by NFA state: the last visit
    uint32_t visit_ = 0;

    std::vector<LookaheadList> lookahead_lists_;
    std::map<LookaheadList, int32_t> lookahead_numbers_;
    std::vector<ThreadList> sets_;
    std::unordered_map<ThreadList, int32_t, VectorHash<Thread>> set_numbers_;
    std::vector<Before> befores_;
    std::map<Before, int32_t> before_numbers_;
    std::vector<Entry> entries_;  // by state of the automaton
    std::unordered_map<uint64_t, int32_t> entry_numbers_;
    TextAutomaton automaton_;
};

}  // namespace

TextAutomaton automaton_of(const RegexNode& tree, Match match, std::string_view where) {
    const RegexNfa nfa = make_regex_nfa(tree, match == Match::anywhere, where);
    return Determiniser(nfa, where).run();
}

TextAutomaton automaton_of(std::string_view pattern, Match match, std::string_view where) {
    return automaton_of(parse_regex(pattern, where), match, where);
}

Grammar grammar_of_regex(std::string_view pattern, Match match) {
    Grammar grammar;
    const TextAutomaton automaton = automaton_of(pattern, match, "regular expression");
    grammar.start_with(part_of(grammar, automaton, utf8_spelling(grammar)));
    return grammar;
}

}  // namespace minim::constraint
