// SPDX-License-Identifier: Apache-2.0
#include "constraint/state_tokens.h"

#include <algorithm>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/log.h"
#include "constraint/json_schema.h"
#include "constraint/regex.h"
#include "support.h"
#include "support/catch.h"
#include "support/tiny_tokenizer.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/tokenizer.h"

using namespace minim;
using namespace minim::constraint;
using namespace minim::constraint::testing;
using minim::test::tiny_tokenizer;

namespace {

// Returns a tokenizer for single bytes and all texts of up to six of the signs a, b and ":". They follow every path through a
// small grammar.
std::shared_ptr<const tokenizer::Tokenizer> every_text() {
    tokenizer::Vocabulary vocabulary;
    std::vector<std::string> texts = {""};
    for (size_t i = 0; i < texts.size() && texts[i].size() < 6; ++i)
        for (const char sign : std::string_view("ab:")) texts.push_back(texts[i] + sign);
    for (int byte = 0; byte < 256; ++byte)
        if (std::string_view("ab:").find(static_cast<char>(byte)) == std::string_view::npos)
            texts.push_back(std::string(1, static_cast<char>(byte)));
    for (size_t i = 1; i < texts.size(); ++i) {
        vocabulary.tokens.push_back(tokenizer::to_stand_ins(texts[i]));
        vocabulary.types.push_back(tokenizer::TokenType::normal);
    }
    return std::make_shared<const tokenizer::Tokenizer>(std::move(vocabulary), tokenizer::PieceRules::model,
                                                        Logger());
}

struct Words {
    explicit Words(std::shared_ptr<const tokenizer::Tokenizer> of)
        : tokenizer(std::move(of)), trie(*tokenizer) {}
    std::shared_ptr<const tokenizer::Tokenizer> tokenizer;
    TokenTrie trie;
    size_t n_mask_words() const { return (static_cast<size_t>(trie.n_vocab()) + 63) / 64; }
};

struct Expected {
    std::vector<uint64_t> bits;
    std::vector<int32_t> exits;
    bool operator==(const Expected&) const = default;
};

struct At {
    int32_t state;
    int32_t count;
};

// Returns all states, those that count with each of their counts.
std::vector<At> all_places(const Automaton& automaton) {
    std::vector<At> places;
    for (int32_t state = 0; state < automaton.n_states(); ++state) {
        const int32_t counter = automaton.counter_of[static_cast<size_t>(state)];
        for (int64_t count = 0, last = -1; count != last && count != Counter::k_none;) {
            last = count;
            const int32_t first =
                counter >= 0 ? automaton.counters[static_cast<size_t>(counter)].first_state : 0;
            if (counter < 0 || automaton.counters[static_cast<size_t>(counter)].counter.is_alive(
                                   static_cast<size_t>(state - first), count))
                places.push_back({state, static_cast<int32_t>(count)});
            if (counter >= 0) count = automaton.counters[static_cast<size_t>(counter)].counter.after(count);
        }
    }
    return places;
}

// Returns the expected tokens of each place, found by following each node's text on its own.
std::vector<Expected> expected_of(const Automaton& automaton, const std::vector<At>& places,
                                  const Words& words) {
    Positions positions(automaton);
    const auto nodes = words.trie.nodes();
    std::vector<std::string> texts;
    std::string text;
    for (const TokenTrie::Node& node : nodes) {
        text.resize(node.depth - size_t{1});
        text += static_cast<char>(node.byte);
        texts.push_back(text);
    }
    std::vector<Expected> all;
    for (const At& place : places) {
        Expected expected;
        expected.bits.resize(words.n_mask_words());
        const int32_t start = positions.alone_in(place.state, place.count);
        for (size_t i = 0; i < nodes.size(); ++i) {
            const int32_t position = positions.read(start, texts[i]);
            if (position == Positions::k_dead) continue;
            const auto token = static_cast<size_t>(nodes[i].token);
            if (nodes[i].token >= 0) expected.bits[token / 64] |= uint64_t{1} << (token % 64);
            const auto at = static_cast<int32_t>(i);
            if (positions.may_end(position) && nodes[i].end > at + 1) expected.exits.push_back(at);
        }
        all.push_back(std::move(expected));
    }
    return all;
}

Expected as_expected(const StateTokens& tokens, const Words& words) {
    Expected found{.bits = tokens.bits, .exits = tokens.exits};
    found.bits.resize(words.n_mask_words());
    for (const int32_t token : tokens.few)
        found.bits[static_cast<size_t>(token) / 64] |= uint64_t{1} << (static_cast<size_t>(token) % 64);
    std::ranges::sort(found.exits);
    return found;
}

// Checks the tokens of all states, whichever states were asked for before.
void check_states(const Grammar& grammar, const Words& words) {
    const Automaton automaton = make_automaton(grammar, words.trie.longest_token());
    // Places of one kind have the same tokens.
    std::map<std::vector<int32_t>, std::vector<uint64_t>> bits_of_kind;
    const std::vector<At> places = all_places(automaton);
    const std::vector<Expected> expected = expected_of(automaton, places, words);
    std::vector<size_t> states(expected.size());
    std::iota(states.begin(), states.end(), size_t{0});
    std::mt19937 random(5);
    for (int round = 0; round < 6; ++round) {
        if (round == 1) std::ranges::reverse(states);
        if (round > 1) std::ranges::shuffle(states, random);
        StateTokensFinder finder(automaton, *words.tokenizer, words.trie);
        for (const size_t state : states) {
            const Expected found = as_expected(finder.find(places[state].state, places[state].count), words);
            const Expected& right = expected[state];
            if (found.bits != right.bits) FAIL("round " << round << ": tokens of state " << state);
            if (found.exits != right.exits) FAIL("round " << round << ": exits of state " << state);
            const auto kind =
                automaton.kind_of(places[state].state, places[state].count, words.trie.longest_token());
            if (bits_of_kind.try_emplace(kind, found.bits).first->second != found.bits)
                FAIL("state " << state << " is of the wrong kind");
        }
    }
}

}  // namespace

TEST_CASE("the tokens of a state are those whose bytes it reads") {
    const Words words(tiny_tokenizer());
    SECTION("schemas") {
        const char* schema = GENERATE(
            R"({})", R"({"type": "string", "maxLength": 40})", R"({"type": "string", "minLength": 15})",
            R"({"type": "string", "minLength": 3, "maxLength": 9})",
            R"({"type": "string", "pattern": "^([a-z]{3} )*$", "minLength": 10, "maxLength": 30})",
            R"({"type": "array", "items": {"type": "integer"}, "minItems": 18, "maxItems": 25})",
            R"({"type": "array", "items": {"type": "string", "maxLength": 5}, "maxItems": 7})",
            R"({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string", "maxLength": 20},
                "c": {"type": "string", "maxLength": 60}, "d": {"type": "string", "pattern": "^[a-z ]{2,30}$"}}})");
        INFO(schema);
        check_states(grammar_of_schema(json::parse(schema, "schema", json::Source::argument)), words);
    }
    SECTION("expressions") {
        const char* pattern = GENERATE("[a-z ]{0,9}: .*", "[^x]{3,20}", "(.{4,30}\n){2,}", ".{0,12}x?.{6}",
                                       "([a-z]{0,6} )*[A-Za-z]{8}[^a]*");
        INFO(pattern);
        check_states(grammar_of_regex(pattern, Match::whole), words);
    }
}

TEST_CASE("tokens that go every way are told apart") {
    const Words words(every_text());
    const char* pattern =
        GENERATE("[ab]{0,9}:[ab:]*", "[ab]{0,9}:a*:b*:[ab]*", "([ab]{2,5}:)+", "[ab:]{0,20}:?",
                 "(a{0,4}b|b{3,8}:)*", "[ab:]{5,12}(a[ab:]*)?", "(a|b{1,7}:{2})*b");
    INFO(pattern);
    check_states(grammar_of_regex(pattern, Match::whole), words);
}
