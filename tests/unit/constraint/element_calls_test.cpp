// SPDX-License-Identifier: Apache-2.0
// Constraints from tools in the chat format of M3.
#include "constraint/element_calls.h"

#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "chat/output_parser.h"
#include "constraint/matcher.h"
#include "constraint/open_elements.h"
#include "constraint/tool_calls.h"
#include "support/catch.h"
#include "support/files.h"
#include "support/helpers.h"
#include "support/tiny_tokenizer.h"

using namespace minim;
using namespace minim::constraint;
using minim::test::expect_error;
using minim::test::tiny_m3_tokenizer;

namespace {

using TokenizerPointer = std::shared_ptr<const tokenizer::Tokenizer>;

const auto k_m3_tokenizer = tiny_m3_tokenizer();

// Returns a text in which ~ stands for the mark.
std::string with_marks(std::string_view text) {
    std::string whole;
    for (const char c : text) c == '~' ? whole += "]<]minimax[>[" : whole += c;
    return whole;
}

std::shared_ptr<const Constraint> element_constraint(const TokenizerPointer& tokenizer,
                                                     std::string_view tools, const ToolChoice& choice = {},
                                                     std::optional<int32_t> opens_with = std::nullopt) {
    Grammar grammar =
        grammar_of_tool_calls(json::parse(tools, "tools", json::Source::argument), choice, *tokenizer);
    return std::make_shared<const Constraint>(std::move(grammar), tokenizer,
                                              std::make_shared<const TokenTrie>(*tokenizer),
                                              ConstraintStart{.opens_with = opens_with});
}

// Returns whether the tokens of the text, with its markup, are a whole answer.
bool accepts_tokens(const std::shared_ptr<const Constraint>& constraint, std::string_view text) {
    const tokenizer::Tokenizer& tokenizer = constraint->tokenizer();
    Matcher matcher(constraint, tokenizer.n_tokens(), {});
    try {
        for (const int32_t id : tokenizer.encode(text, tokenizer::Specials::exact)) matcher.accept(id);
    } catch (const Error&) {
        return false;
    }
    return matcher.may_end();
}

// Returns whether arguments are allowed for a tool "f" with these parameters.
bool allows(std::string_view parameters, std::string_view arguments) {
    const std::string tools = R"([{"name": "f", "parameters": )" + std::string(parameters) + "}]";
    const std::string text = with_marks("~<tool_call>\n~<invoke name=\"f\">" + std::string(arguments) +
                                        "~</invoke>\n~</tool_call>");
    const auto constraint = element_constraint(k_m3_tokenizer, tools);
    const bool is_allowed = constraint->matches(text);
    CHECK(accepts_tokens(constraint, text) == is_allowed);
    return is_allowed;
}

TEST_CASE("the golden texts match constraints from tools in the format of M3, or do not") {
    const auto document =
        nlohmann::ordered_json::parse(test::text_of(MINIM_TEST_DATA "/chat/tool_constraints_m3.json"));
    REQUIRE(document["cases"].size() == 20);
    for (const bool has_block_tokens : {true, false}) {
        const TokenizerPointer tokenizer = tiny_m3_tokenizer(has_block_tokens);
        for (const auto& golden : document["cases"]) {
            INFO("case " << golden["name"] << ", block tokens " << has_block_tokens);
            const std::string name = golden["tool"].is_null() ? "" : golden["tool"].get<std::string>();
            const auto constraint =
                element_constraint(tokenizer, document["tools"][golden["tools"].get<std::string>()].dump(),
                                   {.name = name, .is_single = golden["single"].get<bool>()});
            const auto text = golden["text"].get<std::string>();
            CHECK(constraint->matches(text) == golden["matches"].get<bool>());
            CHECK(accepts_tokens(constraint, text) == golden["matches"].get<bool>());
        }
    }
}

TEST_CASE("arguments of M3 are elements in the order of the schema") {
    constexpr std::string_view schema =
        R"({"properties": {"a": {"type": "string"}, "b": {"type": "integer"}}, "required": ["b"]})";
    CHECK(allows(schema, "~<a>x~</a>~<b>1~</b>"));
    CHECK(allows(schema, "~<b>1~</b>"));
    CHECK(!allows(schema, "~<a>x~</a>"));
    CHECK(!allows(schema, "~<b>1~</b>~<a>x~</a>"));
    CHECK(!allows(schema, "~<b>1~</b>~<c>x~</c>"));
    CHECK(!allows(schema, "<b>1</b>"));
    CHECK(!allows(schema, "~<b>1~</a>"));
}

TEST_CASE("texts of M3 are anything without the mark") {
    constexpr std::string_view schema = R"({"properties": {"a": {"type": "string"}}})";
    CHECK(allows(schema, "~<a>~</a>"));
    CHECK(allows(schema, "~<a>\n</a> <b> ]<] \"\\\" ]<]minimax[>~</a>"));
    CHECK(!allows(schema, "~<a>x~y~</a>"));
    CHECK(allows(R"({"properties": {"a": {"type": "string", "maxLength": 2, "pattern": "^x"}}})",
                 "~<a>xy~</a>"));
    CHECK(!allows(R"({"properties": {"a": {"type": "string", "maxLength": 2, "pattern": "^x"}}})",
                  "~<a>xyz~</a>"));
    // The mark in pieces is the mark too.
    const auto constraint = element_constraint(k_m3_tokenizer, R"([{"name": "f", "parameters":
        {"properties": {"a": {"type": "string"}}}}])");
    Matcher matcher(constraint, k_m3_tokenizer->n_tokens(), {});
    for (const int32_t id : k_m3_tokenizer->encode(
             with_marks("~<tool_call>\n~<invoke name=\"f\">~<a>]<]minimax[>"), tokenizer::Specials::exact))
        matcher.accept(id);
    expect_error(Status::invalid, "does not fit", [&] {
        for (const int32_t id : k_m3_tokenizer->encode("[", tokenizer::Specials::exact)) matcher.accept(id);
    });
}

TEST_CASE("lists and objects of M3 are elements in elements") {
    constexpr std::string_view list =
        R"({"properties": {"l": {"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 2}}})";
    CHECK(allows(list, "~<l>~<item>1~</item>~</l>"));
    CHECK(allows(list, "~<l>~<item>1~</item>~<item>2~</item>~</l>"));
    CHECK(!allows(list, "~<l>~</l>"));
    CHECK(!allows(list, "~<l>~<item>1~</item>~<item>2~</item>~<item>3~</item>~</l>"));
    CHECK(!allows(list, "~<l>~<item>x~</item>~</l>"));
    CHECK(!allows(list, "~<l>~<x>1~</x>~</l>"));
    CHECK(!allows(list, "~<l>[1]~</l>"));
    constexpr std::string_view tuple =
        R"({"properties": {"l": {"type": "array", "prefixItems": [{"type": "string"}, {"type": "boolean"}]}}})";
    CHECK(allows(tuple, "~<l>~<item>x~</item>~<item>true~</item>~</l>"));
    CHECK(!allows(tuple, "~<l>~<item>x~</item>~<item>y~</item>~</l>"));
    constexpr std::string_view object = R"({"properties": {"o": {"type": "object", "properties": {
        "x": {"type": "number"}, "y": {"type": ["number", "null"]}}, "required": ["x"]}}})";
    CHECK(allows(object, "~<o>~<x>1.5~</x>~</o>"));
    CHECK(allows(object, "~<o>~<x>1~</x>~<y>null~</y>~</o>"));
    CHECK(!allows(object, "~<o>~<y>1~</y>~</o>"));
    CHECK(!allows(object, "~<o>{\"x\": 1}~</o>"));
}

TEST_CASE("objects of M3 without named members take any elements") {
    constexpr std::string_view object = R"({"properties": {"o": {"type": "object"}}})";
    CHECK(allows(object, "~<o>~</o>"));
    CHECK(allows(object, "~<o>~<a>1~</a>~<b-c>~<item>x~</item>~</b-c>~</o>"));
    CHECK(!allows(object, "~<o>text~</o>"));
    CHECK(!allows(object, "~<o>~<a>1~</a>"));
    constexpr std::string_view map =
        R"({"properties": {"o": {"type": "object", "additionalProperties": {"type": "integer"}}}})";
    CHECK(allows(map, "~<o>~<one>1~</one>~<two>2~</two>~</o>"));
    CHECK(!allows(map, "~<o>~<one>x~</one>~</o>"));
    constexpr std::string_view any = R"({"properties": {"v": {}}})";
    CHECK(allows(any, "~<v>text~</v>"));
    CHECK(allows(any, "~<v>~<a>~<b>x~</b>~</a>~</v>"));
    CHECK(!allows(any, "~<v>text~<a>x~</a>~</v>"));
}

TEST_CASE("closing tags of M3 have the names of their elements where these are free") {
    constexpr std::string_view any =
        R"({"properties": {"v": {}}, "additionalProperties": {"type": "string"}})";
    CHECK(allows(any, "~<v>~<a>~<a>x~</a>~</a>~<ab>y~</ab>~</v>~<w>z~</w>"));
    CHECK(!allows(any, "~<v>~<a>x~</b>~</v>"));
    CHECK(!allows(any, "~<v>~<ab>x~</a>~</v>"));
    CHECK(!allows(any, "~<v>~<a>x~</ab>~</v>"));
    CHECK(!allows(any, "~<v>~<a>~<b>x~</a>~</b>~</v>"));
    CHECK(!allows(any, "~<v>x~</v>~<w>z~</u>"));
    CHECK(!allows(any, "~<v>~<a>x~</v>~</a>"));

    // Whatever is chosen, elements are closed by their names.
    const auto constraint = element_constraint(
        k_m3_tokenizer, R"([{"name": "f", "parameters": {"properties": {"v": {"type": "object"}}}}])");
    const auto end_of_name = k_m3_tokenizer->encode(">", tokenizer::Specials::exact).at(0);
    const auto mark = k_m3_tokenizer->find("]<]minimax[>[").value();
    std::mt19937 random(3);
    int64_t n_free = 0;
    for (int i = 0; i < 100; ++i) {
        Matcher matcher(constraint, k_m3_tokenizer->n_tokens(), {});
        std::string text;
        for (int64_t n = 0; !matcher.may_end() && n < 5000; ++n) {
            std::vector<int32_t> ids;
            const auto allowed = matcher.allowed();
            for (int32_t id = 0; id < k_m3_tokenizer->n_tokens(); ++id)
                if ((allowed[id / 64] >> (id % 64) & 1) != 0) ids.push_back(id);
            REQUIRE(!ids.empty());
            int32_t id = ids[random() % ids.size()];
            // Else most names and texts would be long.
            for (const int32_t end : {end_of_name, mark})
                if (random() % 2 == 0 && std::ranges::count(ids, end) > 0) id = end;
            text += k_m3_tokenizer->token_bytes(id);
            matcher.accept(id);
        }
        if (!matcher.may_end()) continue;  // too deep
        INFO(text);
        CHECK(closes_its_elements(text, "]<]minimax[>["));
        CHECK(constraint->matches(text));
        n_free += text.find("<v>") != std::string::npos ? 1 : 0;
    }
    CHECK(n_free >= 5);  // most of the others are too deep
}

TEST_CASE("references and listed values of M3 are followed") {
    constexpr std::string_view tree = R"({"properties": {"t": {"$ref": "#/$defs/node"}}, "$defs": {"node": {
        "type": "object", "properties": {"v": {"type": "integer"}, "next": {"$ref": "#/$defs/node"}},
        "required": ["v"]}}})";
    CHECK(allows(tree, "~<t>~<v>1~</v>~<next>~<v>2~</v>~<next>~<v>3~</v>~</next>~</next>~</t>"));
    CHECK(!allows(tree, "~<t>~<v>1~</v>~<next>~</next>~</t>"));
    constexpr std::string_view listed =
        R"({"properties": {"e": {"enum": ["low", 3, null, ["a", 1], {"k": "v", "n": null}]}}})";
    for (const std::string_view value :
         {"low", "3", "null", "~<item>a~</item>~<item>1~</item>", "~<k>v~</k>"})
        CHECK(allows(listed, "~<e>" + std::string(value) + "~</e>"));
    CHECK(!allows(listed, "~<e>high~</e>"));
    CHECK(!allows(listed, "~<e>~<k>v~</k>~<n>null~</n>~</e>"));
    constexpr std::string_view either = R"({"properties": {"e": {"anyOf": [{"type": "string"},
        {"type": "object", "properties": {"x": {"type": "integer"}}}]}}})";
    CHECK(allows(either, "~<e>text~</e>"));
    CHECK(allows(either, "~<e>~<x>1~</x>~</e>"));
}

TEST_CASE("names that an element of M3 cannot have are refused") {
    for (const std::string_view name : {"a<b", "a]", " a", "/a", "invoke name=x", ""}) {
        const std::string tools =
            R"([{"name": "f", "parameters": {"properties": {")" + std::string(name) + R"(": {}}}}])";
        expect_error(Status::invalid, "cannot hold the name",
                     [&] { element_constraint(k_m3_tokenizer, tools); });
    }
    expect_error(Status::invalid, "cannot hold the name",
                 [&] { element_constraint(k_m3_tokenizer, R"([{"name": "f<"}])"); });
}

TEST_CASE("optional calls of M3 begin with the mark") {
    const auto mark = k_m3_tokenizer->find("]<]minimax[>[");
    const auto constraint = element_constraint(k_m3_tokenizer, R"([{"name": "f"}])", {}, mark);
    const std::string call = with_marks("~<tool_call>\n~<invoke name=\"f\">~</invoke>\n~</tool_call>");
    CHECK(constraint->matches("words"));
    CHECK(constraint->matches("words" + call));
    CHECK(!constraint->matches("words" + call + "words"));
    CHECK(!constraint->matches(with_marks("words ~<other>")));
    CHECK(accepts_tokens(constraint, "words" + call));
    CHECK(!accepts_tokens(constraint, with_marks("words ~<other>")));
}

// Generates answers at random, as long as they are short, and ends values soon.
TEST_CASE("random answers within a constraint of M3 parse to calls that fit the tools") {
    const std::string tools = R"([{"name": "f", "parameters": {"type": "object", "properties": {
        "s": {"type": "string", "maxLength": 3}, "n": {"type": "integer", "minimum": 0, "maximum": 99},
        "l": {"type": "array", "maxItems": 2, "items": {"type": "object", "properties": {
            "k": {"type": "boolean"}}, "required": ["k"]}}, "e": {"enum": ["a", 1, {"x": [1]}]}},
        "required": ["s", "l"]}}])";
    const auto constraint = element_constraint(k_m3_tokenizer, tools, {.name = "", .is_single = true});
    std::mt19937 random(7);
    for (int i = 0; i < 200; ++i) {
        Matcher matcher(constraint, k_m3_tokenizer->n_tokens(), {});
        std::string text;
        while (!matcher.must_end()) {
            std::vector<int32_t> ids;
            const auto allowed = matcher.allowed();
            for (int32_t id = 0; id < k_m3_tokenizer->n_tokens(); ++id)
                if ((allowed[id / 64] >> (id % 64) & 1) != 0) ids.push_back(id);
            REQUIRE(!ids.empty());
            const int32_t id = ids[random() % ids.size()];
            text += k_m3_tokenizer->token_bytes(id);
            matcher.accept(id);
        }
        INFO(text);
        CHECK(constraint->matches(text));
        const chat::ParsedOutput output = chat::parse_output(
            text, json::parse(tools, "tools", json::Source::argument),
            {.starts_in_reasoning = false, .family = chat::Family::m3}, chat::Finish::stop);
        CHECK(!output.content);
        REQUIRE(output.calls.size() == 1);
        const auto arguments = nlohmann::json::parse(output.calls[0].arguments);
        CHECK(arguments["s"].is_string());
        CHECK(arguments["l"].is_array());
        for (const auto& item : arguments["l"]) CHECK(item["k"].is_boolean());
        if (arguments.contains("n")) CHECK(arguments["n"].is_number_integer());
    }
}

}  // namespace
