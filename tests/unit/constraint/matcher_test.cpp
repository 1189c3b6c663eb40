// SPDX-License-Identifier: Apache-2.0
#include "constraint/matcher.h"

#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "constraint/gbnf.h"
#include "constraint/json_schema.h"
#include "constraint/regex.h"
#include "support.h"
#include "support/catch.h"
#include "support/helpers.h"
#include "support/tiny_tokenizer.h"

using namespace minim;
using namespace minim::constraint;
using namespace minim::constraint::testing;
using minim::test::expect_error;
using minim::test::tiny_tokenizer;

namespace {

const auto k_tokenizer = tiny_tokenizer();
const auto k_trie = std::make_shared<const TokenTrie>(*k_tokenizer);
const int64_t k_n_vocab = k_tokenizer->n_tokens() + 7;  // padded, as the rows of logits may be

std::shared_ptr<const Constraint> constraint_of(Grammar grammar, std::optional<int32_t> starts_after = {}) {
    return std::make_shared<const Constraint>(std::move(grammar), k_tokenizer, k_trie,
                                              ConstraintStart{.starts_after = starts_after});
}

std::shared_ptr<const Constraint> schema_constraint(std::string_view schema,
                                                    std::optional<int32_t> starts_after = {}) {
    return constraint_of(grammar_of_schema(json::parse(schema, "schema", json::Source::argument)),
                         starts_after);
}

bool is_in(std::span<const uint64_t> mask, int32_t id) {
    return (mask[static_cast<size_t>(id) / 64] >> (static_cast<size_t>(id) % 64) & 1) != 0;
}

constexpr const char* k_counted = R"({"type": "array", "minItems": 17, "maxItems": 19, "items":
    {"type": "string", "pattern": "^(ab|[c-z ]{3})*$", "minLength": 18, "maxLength": 21}})";

constexpr const char* k_schema = R"({
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "kind": {"enum": ["animal", "ant", "plant"]},
        "tags": {"type": "array", "items": {"type": "string", "pattern": "^[a-z]{1,5}$"}, "maxItems": 3},
        "size": {"type": "integer", "minimum": 1, "maximum": 20},
        "more": {"anyOf": [{"type": "null"}, {"$ref": "#"}]}
    },
    "required": ["name", "kind"],
    "additionalProperties": {"type": "boolean"}
})";

// Returns the text of random allowed tokens. The text ends when it must; from token `n_free` on it also ends, and closes strings,
// as soon as that is allowed.
std::string random_text(Matcher& matcher, const std::vector<int32_t>& end_tokens, std::mt19937& random,
                        int n_free) {
    const int32_t quote = k_tokenizer->encode("\"", tokenizer::Specials::none)[0];
    std::string text;
    for (int n = 0; !matcher.must_end(); ++n) {
        if (n > 2000) throw std::runtime_error("no end of " + text);
        if (n >= n_free && matcher.may_end()) break;
        const auto mask = matcher.allowed();
        std::vector<int32_t> choices;
        for (int32_t id = 0; id < k_tokenizer->n_tokens(); ++id)
            if (is_in(mask, id) && std::ranges::find(end_tokens, id) == end_tokens.end())
                choices.push_back(id);
        if (choices.empty()) throw std::runtime_error("nothing may follow " + text);
        int32_t id = choices[random() % choices.size()];
        if (n >= n_free && is_in(mask, quote)) id = quote;
        text += k_tokenizer->token_bytes(id);
        matcher.accept(id);
    }
    return text;
}

}  // namespace

TEST_CASE("a token is allowed exactly where its bytes fit") {
    const char* schema = GENERATE(k_schema, k_counted);
    const auto constraint = schema_constraint(schema);
    Language language = of_schema(schema);
    std::mt19937 random(3);
    const int32_t eos = k_tokenizer->find("[e~[").value();
    const std::vector<int32_t> end_tokens = {eos, k_tokenizer->n_tokens() + 1};
    for (int round = 0; round < 12; ++round) {
        Matcher matcher(constraint, k_n_vocab, end_tokens);
        std::string text;
        while (!matcher.must_end() && text.size() < 300) {
            const auto mask = matcher.allowed();
            std::vector<int32_t> choices;
            for (int32_t id = 0; id < k_tokenizer->n_tokens(); ++id) {
                if (id == eos) continue;
                const bool is_text = tokenizer::is_ordinary(k_tokenizer->token_type(id));
                const bool fits =
                    is_text && language.has_start(text + std::string(k_tokenizer->token_bytes(id)));
                if (is_in(mask, id) != fits) FAIL("token " << id << " after " << text);
                if (fits) choices.push_back(id);
            }
            for (const int32_t id : end_tokens) CHECK(is_in(mask, id) == language.has(text));
            CHECK(matcher.may_end() == language.has(text));
            REQUIRE_FALSE(choices.empty());
            const int32_t id = choices[random() % choices.size()];
            text += k_tokenizer->token_bytes(id);
            matcher.accept(id);
        }
    }
}

TEST_CASE("whatever is chosen, the text fits the schema") {
    const auto constraint = schema_constraint(k_schema);
    Language language = of_schema(k_schema);
    std::mt19937 random(11);
    for (int round = 0; round < 40; ++round) {
        Matcher matcher(constraint, k_n_vocab, {});
        const std::string text = random_text(matcher, {}, random, 30);
        INFO(text);
        CHECK(language.has(text));
        const json::Value value = json::parse(text, "answer", json::Source::argument);
        const json::Value* kind = json::find(&value, "kind");
        REQUIRE(kind != nullptr);
        CHECK((kind->text == "animal" || kind->text == "ant" || kind->text == "plant"));
        REQUIRE(json::find(&value, "name") != nullptr);
        if (const json::Value* size = json::find(&value, "size")) {
            CHECK(size->number >= 0.5);
            CHECK(size->number <= 20.0);
        }
    }
}

TEST_CASE("a token that does not fit is refused") {
    Matcher matcher(schema_constraint(R"({"type": "integer"})"), k_n_vocab, {});
    const int32_t letter = k_tokenizer->encode("a", tokenizer::Specials::none)[0];
    expect_error(Status::invalid, "does not fit the constraint", [&] { matcher.accept(letter); });
}

TEST_CASE("a text that can only end says so") {
    Matcher matcher(schema_constraint(R"({"enum": ["a", "ab"]})"), k_n_vocab, {});
    for (const int32_t id : k_tokenizer->encode("\"a", tokenizer::Specials::none)) matcher.accept(id);
    CHECK_FALSE(matcher.may_end());
    for (const int32_t id : k_tokenizer->encode("\"", tokenizer::Specials::none)) matcher.accept(id);
    CHECK(matcher.may_end());
    CHECK(matcher.must_end());
}

TEST_CASE("everything is allowed up to the token that starts the constraint") {
    const int32_t start = k_tokenizer->find("</think>").value();
    Matcher matcher(schema_constraint(R"({"type": "boolean"})", start), k_n_vocab, {});
    for (const int32_t id : k_tokenizer->encode("true {", tokenizer::Specials::none)) {
        CHECK_FALSE(matcher.has_started());
        CHECK_FALSE(matcher.may_end());
        matcher.accept(id);
    }
    matcher.accept(start);
    REQUIRE(matcher.has_started());
    const auto newline = k_tokenizer->encode("\n", tokenizer::Specials::none);
    CHECK(is_in(matcher.allowed(), newline[0]));
    matcher.accept(newline[0]);
    matcher.accept(newline[0]);
    CHECK_FALSE(is_in(matcher.allowed(), newline[0]));
    for (const int32_t id : k_tokenizer->encode("true", tokenizer::Specials::none)) matcher.accept(id);
    CHECK(matcher.must_end());
}

TEST_CASE("an answer may begin with reasoning if the constraint says so, or go without") {
    const int32_t open = k_tokenizer->find("<think>").value();
    const int32_t close = k_tokenizer->find("</think>").value();
    const ConstraintStart may_reason = {.starts_after = close, .reasons_from = open};
    const auto constraint =
        std::make_shared<const Constraint>(grammar_of_regex("ab"), k_tokenizer, k_trie, may_reason);
    const auto follow = [&](std::initializer_list<std::string_view> parts) {
        Matcher matcher(constraint, k_n_vocab, {});
        try {
            for (const std::string_view part : parts)
                for (const int32_t id : k_tokenizer->encode(part, tokenizer::Specials::exact))
                    matcher.accept(id);
        } catch (const Error&) {
            return false;
        }
        return matcher.may_end();
    };
    CHECK(follow({"ab"}));
    CHECK(follow({"</think>", "ab"}));
    CHECK(follow({"<think>", "some thought", "</think>", "ab"}));
    CHECK_FALSE(follow({"<think>", "some thought"}));
    CHECK_FALSE(follow({"some thought", "</think>", "ab"}));
    CHECK_FALSE(follow({"a", "<think>", "</think>", "b"}));
    for (const char* text : {"ab", "</think>ab", "<think>x</think>ab", "<think></think>ab"})
        CHECK(constraint->matches(text));
    for (const char* text : {"", "\nab", "x</think>ab", "<think>ab", "ab</think>"})
        CHECK_FALSE(constraint->matches(text));

    Matcher matcher(constraint, k_n_vocab, {});
    CHECK(matcher.has_started());
    for (const int32_t id : {open, close, k_tokenizer->encode("a", tokenizer::Specials::exact)[0]})
        CHECK(is_in(matcher.allowed(), id));
    CHECK_FALSE(is_in(matcher.allowed(), k_tokenizer->encode("x", tokenizer::Specials::exact)[0]));
    matcher.accept(open);
    CHECK_FALSE(matcher.has_started());
    matcher.accept(close);
    CHECK(matcher.has_started());
    CHECK_FALSE(is_in(matcher.allowed(), open));
    CHECK_FALSE(is_in(matcher.allowed(), close));

    // A grammar with such markup of its own says what comes first.
    const auto own = std::make_shared<const Constraint>(
        grammar_of_gbnf("root ::= <think> \"x\" </think> \"ab\"", k_tokenizer.get()), k_tokenizer, k_trie,
        may_reason);
    CHECK(own->matches("<think>x</think>ab"));
    CHECK_FALSE(own->matches("<think>y</think>ab"));
    CHECK_FALSE(own->matches("ab"));
}

TEST_CASE("markup is allowed only as the token that the grammar names") {
    const int32_t open = k_tokenizer->find("<minimax:tool_call>").value();
    const int32_t close = k_tokenizer->find("</minimax:tool_call>").value();
    Grammar grammar;
    const Part inside = part_of(grammar, texts_without("<"), utf8_spelling(grammar));
    const Part whole = grammar.sequence({grammar.token(open), inside, grammar.token(close)});
    Matcher matcher(constraint_of(only(std::move(grammar), whole)), k_n_vocab, {});
    const auto allowed_ids = [&] {
        std::vector<int32_t> ids;
        for (int32_t id = 0; id < k_tokenizer->n_tokens(); ++id)
            if (is_in(matcher.allowed(), id)) ids.push_back(id);
        return ids;
    };
    CHECK(allowed_ids() == std::vector<int32_t>{open});
    matcher.accept(open);
    CHECK_FALSE(is_in(matcher.allowed(), open));
    CHECK(is_in(matcher.allowed(), close));
    for (const int32_t id : k_tokenizer->encode("some text", tokenizer::Specials::none)) matcher.accept(id);
    matcher.accept(close);
    CHECK(matcher.must_end());
}

TEST_CASE("deeply nested text does not keep every place it was at") {
    const auto constraint = schema_constraint(R"({"type": "array"})");
    Matcher matcher(constraint, k_n_vocab, {});
    const int32_t open = k_tokenizer->encode("[", tokenizer::Specials::none)[0];
    const int32_t close = k_tokenizer->encode("]", tokenizer::Specials::none)[0];
    constexpr int k_depth = 100'000;
    for (int i = 0; i < k_depth; ++i) matcher.accept(open);
    for (int i = 0; i < k_depth; ++i) {
        CHECK_FALSE(matcher.may_end());
        matcher.accept(close);
    }
    CHECK(matcher.must_end());
}

TEST_CASE("several threads may use one constraint") {
    const auto constraint = schema_constraint(k_schema);
    std::vector<std::string> texts(4);
    std::vector<std::thread> threads;
    for (size_t t = 0; t < texts.size(); ++t) {
        threads.emplace_back([&, t] {
            std::mt19937 random(5);
            Matcher matcher(constraint, k_n_vocab, {});
            texts[t] = random_text(matcher, {}, random, 30);
        });
    }
    for (std::thread& thread : threads) thread.join();
    for (const std::string& text : texts) CHECK(text == texts[0]);
}
