// SPDX-License-Identifier: Apache-2.0
#include "constraint/tool_calls.h"

#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "constraint/matcher.h"
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

constexpr std::string_view k_tools = R"([
    {"type": "function", "function": {"name": "search", "parameters": {"type": "object", "properties": {
        "query": {"type": "string"}, "limit": {"type": "integer", "minimum": 1, "maximum": 50},
        "kind": {"enum": ["web", "news", 3]}, "tags": {"type": "array", "items": {"type": "string"}},
        "since": {"type": ["string", "null"], "format": "date"}}, "required": ["query"]}}},
    {"name": "now"}
])";

Grammar grammar_of(std::string_view tools, const ToolChoice& choice = {}) {
    return grammar_of_tool_calls(json::parse(tools, "tools", json::Source::argument), choice, *k_tokenizer);
}

// Returns whether the text, tokenised with its markup, is a whole answer.
bool fits(std::string_view text, const ToolChoice& choice = {}, std::string_view tools = k_tools) {
    const auto trie = std::make_shared<const TokenTrie>(*k_tokenizer);
    const auto constraint =
        std::make_shared<const Constraint>(grammar_of(tools, choice), k_tokenizer, trie, ConstraintStart{});
    Matcher matcher(constraint, k_tokenizer->n_tokens(), {});
    try {
        for (const int32_t id : k_tokenizer->encode(text, tokenizer::Specials::exact)) matcher.accept(id);
    } catch (const Error&) {
        return false;
    }
    return matcher.may_end();
}

std::string call(const std::string& inside) {
    return "<minimax:tool_call>\n" + inside + "</minimax:tool_call>";
}

std::string search(const std::string& parameters) {
    return "<invoke name=\"search\">\n" + parameters + "</invoke>\n";
}

std::string parameter(const std::string& name, const std::string& value) {
    return "<parameter name=\"" + name + "\">" + value + "</parameter>\n";
}

const std::string k_now = "<invoke name=\"now\">\n</invoke>\n";

}  // namespace

TEST_CASE("calls with the parameters of their tool fit") {
    CHECK(fits(call(k_now)));
    CHECK(fits(call(k_now).insert(0, 1, '\n')));
    CHECK(fits(call(search(parameter("query", "a <b> \"c\" </param> \xC3\xA9\n")))));
    CHECK(fits(call(search(parameter("query", "x") + parameter("limit", "50") + parameter("kind", "news")))));
    CHECK(fits(
        call(search(parameter("query", "") + parameter("kind", "3") + parameter("tags", "[\"a\", \"b\"]")))));
    CHECK(fits(call(search(parameter("query", "x") + parameter("since", "2024-01-31")))));
    CHECK(fits(call(search(parameter("query", "x") + parameter("since", "null")))));
    CHECK(fits(call(search(parameter("query", "x")) + k_now + k_now)));
}

TEST_CASE("anything else does not fit") {
    CHECK_FALSE(fits(""));
    CHECK_FALSE(fits("I cannot call"));
    CHECK_FALSE(fits(call("")));
    CHECK_FALSE(fits(call("<invoke name=\"other\">\n</invoke>\n")));
    CHECK_FALSE(fits(call(search(""))));
    CHECK_FALSE(fits(call(search(parameter("limit", "5")))));
    CHECK_FALSE(fits(call(search(parameter("query", "x") + parameter("limit", "51")))));
    CHECK_FALSE(fits(call(search(parameter("query", "x") + parameter("other", "y")))));
    CHECK_FALSE(fits(call(search(parameter("query", "x") + parameter("since", "soon")))));
    CHECK_FALSE(fits(call(k_now) + " and more"));
}

TEST_CASE("the choice names the tool and the number of calls") {
    const ToolChoice only_now{.name = "now", .is_single = false};
    CHECK(fits(call(k_now + k_now), only_now));
    CHECK_FALSE(fits(call(search(parameter("query", "x"))), only_now));
    const ToolChoice single{.name = "", .is_single = true};
    CHECK(fits(call(search(parameter("query", "x"))), single));
    CHECK_FALSE(fits(call(k_now + k_now), single));
}

TEST_CASE("long texts of several tools are counted, and not copied") {
    std::string tools = "[";
    for (int i = 0; i < 5; ++i) {
        tools += std::string(i > 0 ? "," : "") + R"({"name": "t)" + std::to_string(i) +
                 R"(", "parameters": {"properties": {
            "a": {"type": "string", "minLength": 2, "maxLength": 5000},
            "b": {"type": "string", "pattern": "^[a-z]+( [a-z]+)*$", "maxLength": 5000},
            "c": {"type": "array", "maxItems": 500, "items": {"type": "string", "maxLength": 4000}},
            "d": {"type": "object", "properties": {"e": {"type": "string", "maxLength": 2000000}}, "required": ["e"]},
            "f": {"enum": ["x", "y"]}}, "required": ["a"]}})";
    }
    tools += "]";
    const Grammar grammar = grammar_of(tools);
    const Automaton automaton = make_automaton(grammar, 100);
    CHECK(automaton.n_states() < 5000);  // 65,000 a text otherwise
    const auto has = [&](const std::string& inside) {
        return fits(call("<invoke name=\"t3\">\n" + inside + "</invoke>\n"), {}, tools);
    };
    const std::string two = parameter("a", "xy");
    const auto words = [](size_t n) { return std::string(n, 'w'); };
    CHECK(has(two));
    CHECK_FALSE(has(parameter("a", "x")));
    CHECK(has(parameter("a", words(5000))));
    CHECK_FALSE(has(parameter("a", words(5001))));
    CHECK(has(parameter("a", words(4998) + "\xC3\xA9<")));
    CHECK_FALSE(has(parameter("a", words(4999) + "\xC3\xA9<")));
    CHECK(has(two + parameter("b", words(4998) + " w")));
    CHECK_FALSE(has(two + parameter("b", words(4999) + " ")));
    CHECK_FALSE(has(two + parameter("b", words(4999) + " w")));
    CHECK(has(two + parameter("c", "[\"" + words(4000) + "\", \"\"]")));
    CHECK_FALSE(has(two + parameter("c", "[\"" + words(4001) + "\"]")));
    std::string items = "\"\"";
    for (int i = 1; i < 500; ++i) items += ",\"\"";
    CHECK(has(two + parameter("c", "[" + items + "]")));
    CHECK_FALSE(has(two + parameter("c", "[" + items + ",\"\"]")));
    CHECK(has(two + parameter("d", "{\"e\": \"" + words(6000) + "\"}")));
}

TEST_CASE("a tool that cannot be enforced frees no other tool") {
    std::string large = R"({"name": "large", "parameters": {"properties": {"p": {"enum": [)";
    for (int i = 0; i < 60'000; ++i) large += "\"" + std::to_string(i * 7919) + " is one of the values\", ";
    large += R"("x"]}}}})";
    const std::string small =
        R"({"name": "small", "parameters": {"properties": {"p": {"enum": ["Oslo", "Rome"]}}, "required": ["p"]}})";
    const json::Value tools = json::parse("[" + large + "," + small + "]", "tools", json::Source::argument);
    std::vector<std::string> left_out;
    const Grammar grammar = grammar_of_tool_calls(
        tools, {.name = "", .relaxes = true, .divides_limits = true}, *k_tokenizer, &left_out);
    REQUIRE(left_out.size() == 1);
    CHECK(left_out[0].starts_with("tool large"));
    const auto constraint = std::make_shared<const Constraint>(
        grammar, k_tokenizer, std::make_shared<const TokenTrie>(*k_tokenizer), ConstraintStart{});
    CHECK(constraint->matches(call("<invoke name=\"small\">\n" + parameter("p", "Oslo") + "</invoke>\n")));
    CHECK_FALSE(
        constraint->matches(call("<invoke name=\"small\">\n" + parameter("p", "Bern") + "</invoke>\n")));
    CHECK(constraint->matches(call("<invoke name=\"large\">\n" + parameter("p", "Bern") + "</invoke>\n")));
}

TEST_CASE("tools that cannot be called are refused, by name") {
    expect_error(Status::invalid, "a list is expected", [] { grammar_of("{}"); });
    expect_error(Status::invalid, "the list is empty", [] { grammar_of("[]"); });
    expect_error(Status::invalid, "has no name", [] { grammar_of(R"([{"type": "function"}])"); });
    expect_error(Status::invalid, "the name 'a\"b'", [] { grammar_of(R"([{"name": "a\"b"}])"); });
    expect_error(Status::invalid, "there is no tool 'x'", [] { grammar_of(k_tools, {.name = "x"}); });
    expect_error(Status::invalid, "tool f/p: 'type' cannot be", [] {
        grammar_of(R"([{"name": "f", "parameters": {"properties": {"p": {"type": "text"}}}}])");
    });
}

namespace {

// A constraint with optional calls: the answer may be text until a token opens a call.
struct OptionalCalls {
    explicit OptionalCalls(bool after_reasoning)
        : constraint(std::make_shared<const Constraint>(
              grammar_of(k_tools), k_tokenizer, std::make_shared<const TokenTrie>(*k_tokenizer),
              ConstraintStart{.starts_after = after_reasoning ? k_tokenizer->find("</think>") : std::nullopt,
                              .opens_with = k_tokenizer->find("<minimax:tool_call>")})) {}

    // Returns whether the tokens of the text are allowed and the answer may end after them.
    bool has(std::string_view text) const {
        Matcher matcher(constraint, k_tokenizer->n_tokens(), {});
        try {
            for (const int32_t id : k_tokenizer->encode(text, tokenizer::Specials::exact)) matcher.accept(id);
        } catch (const Error&) {
            return false;
        }
        return matcher.may_end();
    }

    std::shared_ptr<const Constraint> constraint;
};

}  // namespace

TEST_CASE("with optional calls any text fits, and once a call is opened, calls alone") {
    const OptionalCalls calls(false);
    const std::vector<std::string> good = {"", "Hello. <invoke name=\"x\">", "I look." + call(k_now),
                                           "\n\n" + call(search(parameter("query", "x"))),
                                           "</think>" + call(k_now)};
    const std::vector<std::string> bad = {"I look.<minimax:tool_call>",
                                          "<minimax:tool_call>\n</minimax:tool_call>",
                                          call("<invoke name=\"other\">\n</invoke>\n"),
                                          "x" + call(search("")),
                                          call(k_now) + " and more",
                                          call(k_now) + call(k_now)};
    for (const std::string& text : good) {
        INFO(text);
        CHECK(calls.has(text));
        CHECK(calls.constraint->matches(text));
    }
    for (const std::string& text : bad) {
        INFO(text);
        CHECK_FALSE(calls.has(text));
        CHECK_FALSE(calls.constraint->matches(text));
    }
}

TEST_CASE("optional calls behind reasoning leave the reasoning free") {
    const OptionalCalls calls(true);
    const std::string thought = "Shall I write <minimax:tool_call> now?\n";
    for (const std::string& text :
         {thought, thought + "</think>\n\nNo.", thought + "</think>\n\n" + call(k_now)}) {
        INFO(text);
        CHECK(calls.has(text));
        CHECK(calls.constraint->matches(text));
    }
    for (const std::string& text :
         {thought + "</think>\n\n" + call(""), thought + "</think>" + call(search(""))}) {
        INFO(text);
        CHECK_FALSE(calls.has(text));
        CHECK_FALSE(calls.constraint->matches(text));
    }
}

TEST_CASE("a relaxed list of tools leaves out what cannot be enforced, and nothing else") {
    constexpr std::string_view k_odd_tools = R"([
        {"name": "tag", "parameters": {"properties": {
            "names": {"type": "array", "items": {"type": "string"}, "uniqueItems": true, "maxItems": 2},
            "word": {"type": "string", "pattern": "^(.)\\1$"}, "n": {"type": "integer", "maximum": 9}},
            "required": ["n"]}},
        {"name": "count", "parameters": {"properties": {"to": {"type": "integer", "minimum": 3}}, "required": ["to"]}},
        {"name": "far", "parameters": {"$ref": "https://example.org/schema"}}])";
    expect_error(Status::unsupported, "uniqueItems", [&] { grammar_of(k_odd_tools); });
    const ToolChoice relaxed{.name = "", .is_single = false, .relaxes = true};
    std::vector<std::string> left_out;
    grammar_of_tool_calls(json::parse(k_odd_tools, "tools", json::Source::argument), relaxed, *k_tokenizer,
                          &left_out);
    REQUIRE(left_out.size() == 3);
    CHECK(left_out[0].starts_with("tool tag/properties/names/uniqueItems is left out: "));
    CHECK(left_out[1].starts_with("tool tag/properties/word/pattern is left out: "));
    CHECK(left_out[2].starts_with("tool far/$ref is left out: "));

    const auto tag = [](const std::string& parameters) {
        return call("<invoke name=\"tag\">\n" + parameters + "</invoke>\n");
    };
    CHECK(fits(tag(parameter("names", "[\"a\", \"a\"]") + parameter("word", "abc") + parameter("n", "9")),
               relaxed, k_odd_tools));
    CHECK_FALSE(
        fits(tag(parameter("names", "[\"a\", \"a\", \"a\"]") + parameter("n", "9")), relaxed, k_odd_tools));
    CHECK_FALSE(fits(tag(parameter("n", "10")), relaxed, k_odd_tools));
    CHECK_FALSE(fits(tag(parameter("word", "aa")), relaxed, k_odd_tools));
    CHECK_FALSE(
        fits(call("<invoke name=\"count\">\n" + parameter("to", "2") + "</invoke>\n"), relaxed, k_odd_tools));
    CHECK(
        fits(call("<invoke name=\"far\">\n" + parameter("any", "x") + "</invoke>\n"), relaxed, k_odd_tools));
}

TEST_CASE("relaxing keeps what a list of tools can enforce unchanged, and refuses what is no schema") {
    const ToolChoice relaxed{.name = "", .is_single = false, .relaxes = true};
    std::vector<std::string> left_out;
    grammar_of_tool_calls(json::parse(k_tools, "tools", json::Source::argument), relaxed, *k_tokenizer,
                          &left_out);
    CHECK(left_out.empty());
    CHECK_FALSE(fits(call(search(parameter("query", "x") + parameter("limit", "51"))), relaxed));
    expect_error(Status::invalid, "tool f/p: 'type' cannot be", [&] {
        grammar_of(R"([{"name": "f", "parameters": {"properties": {"p": {"type": "text"},
                    "q": {"type": "array", "uniqueItems": true}}}}])",
                   relaxed);
    });
}

TEST_CASE("what a relaxed tool leaves out makes nothing else stricter") {
    constexpr std::string_view k_tools_with_parts = R"([
        {"name": "one", "parameters": {"required": ["p"], "properties": {"p": {"oneOf": [
            {"type": "array", "uniqueItems": true, "maxItems": 2},
            {"type": "array", "items": {"type": "integer"}, "maxItems": 3}]}}}},
        {"name": "list", "parameters": {"required": ["p"], "properties": {"p": {
            "type": "array", "contains": {"type": "integer"}, "minContains": 0, "uniqueItems": true}}}},
        {"name": "map", "parameters": {"required": ["p"], "properties": {"p": {"type": "object",
            "patternProperties": {"^(x)\\1": {"type": "integer"}}, "additionalProperties": false}}}}])";
    const ToolChoice relaxed{.name = "", .is_single = false, .relaxes = true};
    const auto fits_in = [&](const char* tool, const char* value) {
        const std::string invoke = "<invoke name=\"" + std::string(tool) + "\">\n";
        return fits(call(invoke + parameter("p", value) + "</invoke>\n"), relaxed, k_tools_with_parts);
    };
    CHECK(fits_in("one", "[1, 2]"));
    CHECK(fits_in("one", "[1, 1, 2]"));
    CHECK_FALSE(fits_in("one", "[\"a\", \"b\", \"c\"]"));
    CHECK(fits_in("list", "[\"a\"]"));
    CHECK(fits_in("map", "{\"xx\": 1}"));
    CHECK_FALSE(fits_in("map", "[]"));
}
