// SPDX-License-Identifier: Apache-2.0
#include "constraint/json_schema.h"

#include <string>
#include <vector>

#include "base/error.h"
#include "base/format_text.h"
#include "support.h"
#include "support/catch.h"
#include "support/helpers.h"

using namespace minim;
using namespace minim::constraint;
using namespace minim::constraint::testing;
using minim::test::expect_error;

namespace {

void check(const std::vector<Example>& examples) {
    check_examples(examples, of_schema);
}

}  // namespace

TEST_CASE("any JSON value") {
    const std::vector<std::string> values = {"null",
                                             "true",
                                             "false",
                                             "0",
                                             "-1",
                                             "1.5",
                                             "1e5",
                                             "-0.1E-2",
                                             R"("")",
                                             R"("a b")",
                                             "[]",
                                             "{}",
                                             "[1, 2]",
                                             "[ [ ] , { } ]",
                                             R"({"a": [1, {"b": null}], "c": ""})",
                                             "{\n  \"a\": 1,\n  \"b\": [\n    2\n  ]\n}",
                                             R"("\"\\\/\b\f\n\r\t\u00e9\uD83D\uDE00")",
                                             "\"\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80\x7F\""};
    const std::vector<std::string> others = {
        "",          " 1",          "1 ",           "nul",          "True", "01",     "+1",     "1.",
        ".5",        "1e",          "1e1.5",        "--1",          "\"",   "\"\n\"", "\"\t\"", R"("\x")",
        R"("\u12")", R"("\uD83D")", R"("\uDE00")",  R"("\uD83Dx")", "[1,]", "[,1]",   "[1 2]",  "{,}",
        R"({"a"})",  R"({a: 1})",   R"({"a": 1,})", R"({"a" 1})",   "[",    "{",      "[}",     "'a'",
        "\"\xFF\"",  "\"\xC3\"",    "[\n\n\n1]",    "[  1]"};
    check({{"{}", values, others},
           {"true", values, others},
           {R"({"description": "anything"})", values, others}});
}

TEST_CASE("simple types") {
    check({
        {R"({"type": "null"})", {"null"}, {"0", "false"}},
        {R"({"type": "boolean"})", {"true", "false"}, {"null", "1"}},
        {R"({"type": "integer"})", {"0", "-12", "123456789012345678901234567890"}, {"1.0", "1e3", "00", "-"}},
        {R"({"type": "number"})",
         {"0", "-1.5", "2e10", "1e-300", "0.12345678901234567890123"},
         {"\"1\"", "1e"}},
        {R"({"type": "string"})", {R"("")", R"("é")"}, {"null", "a"}},
        {R"({"type": ["string", "null"]})", {R"("x")", "null"}, {"1"}},
        {R"({"type": "object"})", {"{}", R"({"a": [1]})"}, {"[]"}},
        {R"({"type": "array"})", {"[]", R"([1, "a"])"}, {"{}"}},
    });
}

TEST_CASE("bounds of numbers and lengths") {
    check({
        {R"({"type": "integer", "minimum": 1, "maximum": 12})", {"1", "12"}, {"0", "13", "-1", "1.5"}},
        {R"({"type": "integer", "exclusiveMinimum": 1, "exclusiveMaximum": 3})", {"2"}, {"1", "3"}},
        {R"({"type": "number", "minimum": 0, "exclusiveMaximum": 1})",
         {"0", "0.5", "0.999"},
         {"1", "1.0", "-0.1"}},
        {R"({"type": "number", "minimum": 1, "exclusiveMinimum": true})", {"1.01"}, {"1"}},
        {R"({"minimum": 5, "multipleOf": 1})", {"5"}, {"5.5", "4"}},
        {R"({"type": "string", "minLength": 2, "maxLength": 3})",
         {R"("ab")", R"("aé€")", R"("\n\"")", R"("\uD83D\uDE00x")"},
         {R"("a")", R"("abcd")"}},
        {R"({"minLength": 1})", {R"("a")"}, {R"("")"}},
    });
}

TEST_CASE("patterns and formats of strings") {
    check({
        {R"({"type": "string", "pattern": "^[a-z]+\\d$"})", {R"("ab1")"}, {R"("1")", R"("ab12")", "\"ab1"}},
        {R"({"type": "string", "pattern": "\\d"})", {R"("x1y")"}, {R"("xy")"}},
        {R"({"pattern": "^[^a]*$"})", {R"("b\"\\\n")", "\"\xC3\xA9\""}, {R"("a")", "\"\n\"", R"("\x")"}},
        {R"({"type": "string", "format": "date"})",
         {R"("2024-02-28")", R"("2024-01-31")", R"("2024-11-30")"},
         {R"("2024-13-01")", R"("2024-02-30")", R"("2024-04-31")", R"("24-01-01")"}},
        {R"({"type": "string", "format": "date-time"})",
         {R"("2024-01-01T10:00:00Z")", R"("2024-01-01T10:00:00.5+02:00")"},
         {R"("2024-01-01")", R"("2024-01-01T25:00:00Z")"}},
        {R"({"type": "string", "format": "uuid"})",
         {R"("123e4567-e89b-12d3-a456-426614174000")"},
         {R"("123e4567")"}},
        {R"({"type": "string", "format": "email"})", {R"("a.b@example.org")"}, {R"("a.b")", R"("@x.org")"}},
        {R"({"type": "string", "format": "ipv4"})", {R"("127.0.0.1")"}, {R"("256.0.0.1")", R"("1.2.3")"}},
        {R"({"type": "string", "format": "uri"})", {R"("https://example.org/a?b=c#d")"}, {R"("no uri")"}},
        {R"({"type": "string", "format": "duration"})",
         {R"("P1Y2M3DT4H5M6S")", R"("PT5M")", R"("P2W")"},
         {R"("P")", R"("5M")"}},
        {R"({"type": "string", "format": "not known"})", {R"("anything")"}, {"1"}},
    });
}

TEST_CASE("fixed values") {
    check({
        {R"({"enum": ["a", 1, null, [1, {"b": 2}]]})",
         {R"("a")", "1", "null", R"([1,{"b":2}])", R"([ 1, { "b" : 2 } ])"},
         {R"("b")", "2", "[1]"}},
        {R"({"const": "a\"b"})", {R"("a\"b")"}, {R"("ab")"}},
        {R"({"type": "string", "enum": ["a", 1]})", {R"("a")"}, {"1"}},
        {R"({"type": ["number"], "enum": ["a", 1, 2.50]})", {"1", "2.50"}, {R"("a")"}},
        {R"({"enum": [1, 2], "const": 2})", {"2"}, {"1"}},
        {R"({"enum": ["a", "abc", 3, null], "type": ["string", "integer"], "maxLength": 2})",
         {R"("a")", "3"},
         {R"("abc")", "null"}},
        {R"({"enum": ["2024-01-01", "soon"], "format": "date", "type": "string"})",
         {R"("2024-01-01")"},
         {R"("soon")"}},
        {R"({"enum": [{"a": 1}, {"a": "x"}, {}], "properties": {"a": {"$ref": "#/$defs/n"}}, "required": ["a"], "$defs": {"n": {"type": "number"}}})",
         {R"({"a": 1})"},
         {R"({"a": "x"})", "{}"}},
        {R"({"const": "é"})", {"\"\xC3\xA9\""}, {R"("\u00e9")"}},
    });
}

TEST_CASE("objects with named members") {
    check({
        {R"({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}}, "required": ["a", "b"]})",
         {R"({"a":1,"b":"x"})", R"({ "a" : 1 , "b" : "x" })", "{\n  \"a\": 1,\n  \"b\": \"x\"\n}"},
         {"{}", R"({"a": 1})", R"({"b": "x", "a": 1})", R"({"a": 1, "b": "x", "c": 1})",
          R"({"a": "x", "b": "x"})"}},
        {R"({"properties": {"a": {}, "b": {}, "c": {}}, "required": ["b"]})",
         {R"({"b": 1})", R"({"a": 1, "b": 1})", R"({"b": 1, "c": 1})", R"({"a": 1, "b": 1, "c": 1})"},
         {"{}", R"({"a": 1})", R"({"a": 1, "c": 1})", R"({,"b": 1})", R"({"b": 1,})"}},
        {R"({"properties": {"a": {}, "b": {}}})",
         {"{}", R"({"a": 1})", R"({"b": 1})", R"({"a": 1, "b": 2})"},
         {R"({"b": 1, "a": 1})"}},
        {R"({"properties": {"a\"\n": {"const": 1}}})", {R"({"a\"\n": 1})"}, {R"({"a": 1})"}},
        {R"({"required": ["z"], "type": "object"})", {R"({"z": [1]})"}, {"{}", R"({"y": 1})"}},
        {R"({"properties": {"a": {"type": "null"}}, "additionalProperties": {"type": "integer"}})",
         {"{}", R"({"a": null})", R"({"b": 1})", R"({"a": null, "b": 1, "ab": 2, "": 3})"},
         {R"({"a": 1})", R"({"b": null})", R"({"b": 1, "a": null})", R"({"\u0061": 1})"}},
        {R"({"properties": {"ab": {}, "abc": {}, "b": {}}, "required": ["ab", "abc", "b"], "additionalProperties": true})",
         {R"({"ab":1,"abc":1,"b":1,"a":1,"abd":1,"abcd":1,"bb":1,"é":1})"},
         {R"({"ab":1,"abc":1,"b":1,"ab":1})", R"({"ab":1,"abc":1,"b":1,"abc":1})",
          R"({"ab":1,"abc":1,"b":1,"b":1})"}},
        {R"({"properties": {"a": false, "b": true}})", {R"({"b": 1})", "{}"}, {R"({"a": 1})"}},
        {R"({"type": "object", "additionalProperties": false})", {"{}", "{ }"}, {R"({"a": 1})"}},
        {R"({"type": "object", "additionalProperties": {"type": "boolean"}})",
         {"{}", R"({"x": true})"},
         {R"({"x": 1})"}},
        {R"({"type": "object", "minProperties": 1, "maxProperties": 2})",
         {R"({"x": 1})", R"({"x": 1, "y": 2})"},
         {"{}", R"({"x": 1, "y": 2, "z": 3})"}},
        {R"({"type": "object", "propertyNames": {"pattern": "^k\\d$"}})",
         {R"({"k1": 1})", "{}"},
         {R"({"k": 1})"}},
        {R"({"type": "object", "patternProperties": {"^k": {"type": "integer"}}})",
         {R"({"k1": 1})"},
         {R"({"x": 1})", R"({"k": "a"})"}},
    });
}

TEST_CASE("arrays") {
    check({
        {R"({"type": "array", "items": {"type": "integer"}})",
         {"[]", "[1]", "[1, 2,3]"},
         {R"(["a"])", "[1,]"}},
        {R"({"items": {"type": "integer"}, "minItems": 2, "maxItems": 3})",
         {"[1,2]", "[1,2,3]"},
         {"[]", "[1]", "[1,2,3,4]"}},
        {R"({"type": "array", "maxItems": 0})", {"[]"}, {"[1]"}},
        {R"({"prefixItems": [{"const": 1}, {"const": 2}]})", {"[]", "[1]", "[1, 2]"}, {"[2]", "[1, 2, 3]"}},
        {R"({"prefixItems": [{"const": 1}, {"const": 2}], "minItems": 2, "items": {"const": 3}, "maxItems": 4})",
         {"[1, 2]", "[1, 2, 3]", "[1, 2, 3, 3]"},
         {"[1]", "[1, 2, 3, 3, 3]", "[1, 2, 2]"}},
        {R"({"items": [{"const": 1}, {"const": 2}], "additionalItems": {"const": 3}})",
         {"[1, 2, 3]"},
         {"[1, 3]"}},
        {R"({"prefixItems": [{"const": 1}, {"const": 2}], "maxItems": 1})", {"[]", "[1]"}, {"[1, 2]"}},
        {R"({"prefixItems": [{"const": 1}], "items": false})", {"[]", "[1]"}, {"[1, 1]"}},
    });
}

TEST_CASE("combinations") {
    check({
        {R"({"anyOf": [{"type": "integer"}, {"type": "string", "maxLength": 1}]})",
         {"1", R"("a")"},
         {R"("ab")", "null"}},
        {R"({"oneOf": [{"properties": {"k": {"const": "a"}, "x": {"type": "integer"}}, "required": ["k", "x"]},
                       {"properties": {"k": {"const": "b"}, "y": {"type": "string"}}, "required": ["k", "y"]}]})",
         {R"({"k": "a", "x": 1})", R"({"k": "b", "y": ""})"},
         {R"({"k": "a", "y": ""})", R"({"k": "c"})"}},
        {R"({"allOf": [{"properties": {"a": {"type": "integer"}}, "required": ["a"]},
                       {"properties": {"b": {"type": "null"}}, "required": ["b"]}]})",
         {R"({"a": 1, "b": null})"},
         {R"({"a": 1})", R"({"b": null})"}},
        {R"({"type": "object", "properties": {"a": {"minimum": 3}, "b": {}}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]})",
         {R"({"a": 3})", R"({"b": 1})", R"({"a": 4, "b": 1})"},
         {"{}", R"({"a": 2})"}},
        {R"({"allOf": [{"type": "number", "minimum": 2}, {"minimum": 5, "maximum": 9}, {"type": "integer"}]})",
         {"5", "9"},
         {"4", "10", "5.5"}},
        {R"({"allOf": [{"properties": {"a": {"minimum": 1, "type": "integer"}}}, {"properties": {"a": {"maximum": 2}}}]})",
         {R"({"a": 1})", R"({"a": 2})"},
         {R"({"a": 0})", R"({"a": 3})"}},
        {R"({"allOf": [{"properties": {"a": true}, "additionalProperties": false}, {"properties": {"b": true}}]})",
         {"{}", R"({"a": 1})"},
         {R"({"b": 1})"}},
        {R"({"enum": [1, 2, 3], "anyOf": [{"enum": [2, 3, 4]}]})", {"2", "3"}, {"1", "4"}},
        {R"({"type": ["integer", "string"], "anyOf": [{"type": ["number", "null"]}]})",
         {"1"},
         {"1.5", R"("a")", "null"}},
        {R"({"anyOf": [false, {"const": 1}]})", {"1"}, {"2"}},
    });
}

TEST_CASE("conditions on names that no keyword describes") {
    const std::vector<Example> examples = {
        {R"({"type": "object", "dependentRequired": {"b": ["a"]}})",
         {"{}", R"({"a":1})", R"({"a":1,"b":2})", R"({"c":[]})"},
         {R"({"b":1})", R"({"c":1,"b":2})"}},
        {R"({"type": "object", "dependentRequired": {"c": ["a", "b"]}})",
         {"{}", R"({"a":1,"b":2})", R"({"a":1,"b":2,"c":3})"},
         {R"({"a":1,"c":2})", R"({"c":1})"}},
        {R"({"type": "object", "dependentSchemas": {"b": {"properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}}})",
         {R"({"a":1,"b":2})", R"({"a":"x"})", R"({"b":2})"},
         {R"({"a":"x","b":2})", R"({"a":1,"b":"x"})"}},
        {R"({"type": "object", "dependentSchemas": {"a": true, "b": false}})",
         {"{}", R"({"a":1})", R"({"c":1})"},
         {R"({"b":1})", R"({"a":1,"b":2})"}},
        {R"({"type": "object", "dependencies": {"b": ["a"], "d": {"required": ["c"]}}})",
         {"{}", R"({"a":1})", R"({"a":1,"b":2})", R"({"c":1,"d":2})"},
         {R"({"b":1})", R"({"d":1})"}},
        {R"({"type": "object", "if": {"required": ["a"]}, "then": {"required": ["b"]}})",
         {"{}", R"({"c":1})", R"({"a":1,"b":2})"},
         {R"({"a":1})"}},
        {R"({"type": "object", "properties": {"a": false}})", {"{}", R"({"b":1})"}, {R"({"a":1})"}},
    };
    check_examples(examples, of_schema);
}

TEST_CASE("references, also to itself") {
    check({
        {R"({"$ref": "#/$defs/a", "$defs": {"a": {"type": "integer"}}})", {"1"}, {R"("a")"}},
        {R"({"$ref": "#/definitions/x~1y%25", "definitions": {"x/y%": {"const": 1}}})", {"1"}, {"2"}},
        {R"({"properties": {"value": {"type": "integer"}, "next": {"$ref": "#"}}, "required": ["value"]})",
         {R"({"value": 1})", R"({"value": 1, "next": {"value": 2, "next": {"value": 3}}})"},
         {R"({"value": 1, "next": {}})"}},
        {R"({"$defs": {"tree": {"type": "object", "properties": {"kids": {"type": "array", "items": {"$ref": "#/$defs/tree"}}},
             "required": ["kids"]}}, "$ref": "#/$defs/tree"})",
         {R"({"kids": []})", R"({"kids": [{"kids": []}, {"kids": [{"kids": []}]}]})"},
         {R"({"kids": [{}]})"}},
        {R"({"anyOf": [{"type": "null"}, {"type": "array", "items": {"$ref": "#"}}]})",
         {"null", "[[null], []]"},
         {"[1]"}},
        {R"({"$ref": "#/$defs/a", "maximum": 3, "$defs": {"a": {"type": "integer", "minimum": 2}}})",
         {"2", "3"},
         {"1", "4"}},
        {R"({"anyOf": [{"const": 1}, {"$ref": "#/anyOf/0"}]})", {"1"}, {"2"}},
    });
}

TEST_CASE("schemas that refer to each other in circles come to an end") {
    check({
        {R"({"$defs": {"a": {"properties": {"x": {"allOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}]}, "n": {"minimum": 3}}},
                       "b": {"properties": {"x": {"allOf": [{"$ref": "#/$defs/b"}, {"$ref": "#/$defs/a"}]}, "n": {"maximum": 5}}}},
             "allOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}]})",
         {"{}", R"({"x": {"x": {"n": 4}}, "n": 5})"},
         {R"({"n": 6})", R"({"x": {"x": {"n": 2}}})"}},
    });
    // A chain of references that is deeper than the call stack allows.
    std::string chain = R"({"$ref": "#/$defs/0", "$defs": {)";
    constexpr int k_length = 5000;
    for (int i = 0; i < k_length; ++i)
        chain += format_text(R"("{}": {{"items": {{"$ref": "#/$defs/{}"}}}}, )", i, i + 1);
    chain += format_text(R"("{}": {{"const": 1}}}}}})", k_length);
    Language language = of_schema(chain);
    const auto nested = [](size_t n) { return std::string(n, '[').append("1").append(n, ']'); };
    CHECK(language.has(nested(k_length)));
    CHECK_FALSE(language.has(nested(k_length - 1)));
}

TEST_CASE("many optional members make no large automaton") {
    std::string schema = R"({"type": "object", "properties": {)";
    for (int i = 0; i < 200; ++i)
        schema += (i > 0 ? ", \"name" : "\"name") + std::to_string(i) + R"(": {"type": "integer"})";
    Language language = of_schema(schema + "}}");
    CHECK(language.automaton().n_states() < 6000);
    CHECK(language.has(R"({"name3": 1, "name17": 2, "name199": 3})"));
    CHECK_FALSE(language.has(R"({"name17": 1, "name3": 2})"));
}

TEST_CASE("what is no schema is refused, with its place") {
    const auto refused = [](const char* schema, std::string_view part) {
        INFO(schema);
        expect_error(Status::invalid, part, [&] { of_schema(schema); });
    };
    refused("1", "schema: a schema is an object or a boolean, not 1");
    refused(R"({"properties": {"a": "string"}})", "schema/properties/a: a schema is an object");
    refused(R"({"type": "text"})", "'type' cannot be \"text\"");
    refused(R"({"type": ["text"]})", "'type' cannot be");
    refused(R"({"required": "a"})", "'required' cannot be \"a\"");
    refused(R"({"properties": []})", "'properties' cannot be []");
    refused(R"({"minLength": -1})", "'minLength' cannot be -1");
    refused(R"({"maxItems": 1.5})", "'maxItems' cannot be 1.5");
    refused(R"({"anyOf": []})", "'anyOf' is a list");
    refused(R"({"pattern": "("})", "the regular expression '('");
    refused(R"({"$ref": "#/nowhere"})", "'#/nowhere' is not in the schema");
    refused(R"({"$ref": "#"})", "refers to itself without end");
    refused(R"({"anyOf": [{"$ref": "#"}]})", "refers to itself without end");
    refused("false", "no text fits");
    refused(R"({"type": "integer", "minimum": 3, "maximum": 2})", "no text fits");
    refused(R"({"properties": {"a": {"$ref": "#"}}, "required": ["a"]})", "no text fits");
    refused(R"({"type": "string", "minLength": 3, "maxLength": 2})", "no text fits");
    refused(R"({"enum": []})", "no text fits");
}

TEST_CASE("what cannot be enforced is refused, by name") {
    const auto refused = [](const std::string& schema, std::string_view part) {
        INFO(schema);
        expect_error(Status::unsupported, part, [&] { of_schema(schema); });
    };
    refused(R"({"properties": {"a": {"type": "array", "uniqueItems": true}}})",
            "schema/properties/a: 'uniqueItems'");
    refused(R"({"not": {"propertyNames": {"maxLength": 3}}})", "schema/not: 'propertyNames'");
    refused(R"({"items": {"multipleOf": 0.123456789}})", "schema/items: 'multipleOf' 0.123456789");
    refused(R"({"properties": {"s": {"pattern": "^(a)\\1$"}}})",
            "schema/properties/s: the regular expression");
    refused(R"({"$ref": "https://example.org/schema"})", "is not a place in the schema itself");
    refused(R"({"properties": {"a": {"$ref": "#nobody"}}})", "schema/properties/a: $ref '#nobody'");
    refused(R"({"properties": {"a": {"maxLength": 1000000001}}})",
            "schema/properties/a: 'maxLength' 1000000001; at most 1000000000");
    refused(R"({"properties": {"a": {"items": {"minItems": 1e10}}}})",
            "schema/properties/a/items: 'minItems' 1e10");
    refused(R"({"properties": {"a": {}}, "maxProperties": 99999, "additionalProperties": true})",
            "counts up to 99999");
    refused(R"({"properties": {"a": {"propertyNames": {"pattern": "a..b", "maxLength": 90000}}}})",
            "schema/properties/a/propertyNames: the keywords");
    std::string prefix = R"({"prefixItems": [{})";
    for (int i = 0; i < 200; ++i) prefix += ", {}";
    refused(prefix + "]}", "201 'prefixItems'");
    // Each part refers twice to the next one, so the last one is used 2^40 times.
    std::string parts = R"({"$ref": "#/$defs/0", "$defs": {)";
    for (int i = 0; i < 40; ++i)
        parts += format_text(R"("{}": {{"allOf": [{{"$ref": "#/$defs/{}"}}, {{"$ref": "#/$defs/{}"}}]}}, )",
                             i, i + 1, i + 1);
    refused(parts + R"("40": {"type": "object"}}})", "members of schemas");
    std::string names = R"({"properties": {"0": {})";
    for (int i = 1; i <= 5000; ++i) names += format_text(R"(, "{}": {{}})", i);
    refused(names + "}}", "5001 names in 'properties'");
    std::string expressions = R"({"properties": {)";
    for (int i = 0; i < 40; ++i)
        expressions +=
            format_text(R"("{}": {{"pattern": "^(a|bc){{{}}}$", "type": "string"}}, )", i, 30000 + i);
    refused(expressions + R"("z": {}}})", "the expressions of the schema need more than");
    std::string choices = R"({"allOf": [)";
    for (int i = 0; i < 4; ++i) choices += R"({"anyOf": [{}, {}, {}, {}, {}, {}, {}]}, )";
    refused(choices + "{}]}", "more than 1000 alternatives");
    of_schema(R"({"type": "array", "uniqueItems": false})");
    of_schema(R"({"x-note": 1, "title": "t", "default": 3, "examples": [], "$schema": "s"})");
}
