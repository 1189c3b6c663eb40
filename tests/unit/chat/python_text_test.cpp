// SPDX-License-Identifier: Apache-2.0
#include "chat/python_text.h"

#include <limits>
#include <string>

#include "chat/jinja_value.h"
#include "support/catch.h"

namespace minim::chat {
namespace {

json::Value document(std::string_view text) {
    return json::parse(text, "doc", json::Source::argument);
}
std::string str(std::string_view text) {
    return std::string(jinja::to_text(jinja::from_json(document(text))).bytes());
}
std::string dumps(std::string_view text) {
    return std::string(jinja::to_json(jinja::from_json(document(text)), {}).bytes());
}

TEST_CASE("floats print as repr() does") {
    CHECK(python_float(0.0) == "0.0");
    CHECK(python_float(-0.0) == "-0.0");
    CHECK(python_float(1.0) == "1.0");
    CHECK(python_float(-1.5) == "-1.5");
    CHECK(python_float(0.1) == "0.1");
    CHECK(python_float(100.0) == "100.0");
    CHECK(python_float(123.456) == "123.456");
    CHECK(python_float(0.0001) == "0.0001");
    CHECK(python_float(0.00012345) == "0.00012345");
    CHECK(python_float(0.00001) == "1e-05");
    CHECK(python_float(0.000012345) == "1.2345e-05");
    CHECK(python_float(1e15) == "1000000000000000.0");
    CHECK(python_float(1234567890123456.7) == "1234567890123456.8");
    CHECK(python_float(9999999999999998.0) == "9999999999999998.0");
    CHECK(python_float(1e16) == "1e+16");
    CHECK(python_float(12345678901234567890.0) == "1.2345678901234567e+19");
    CHECK(python_float(1e22) == "1e+22");
    CHECK(python_float(1e100) == "1e+100");
    CHECK(python_float(5e-324) == "5e-324");
    CHECK(python_float(std::numeric_limits<double>::max()) == "1.7976931348623157e+308");
    CHECK(python_float(std::numeric_limits<double>::infinity()) == "inf");
    CHECK(python_float(-std::numeric_limits<double>::infinity()) == "-inf");
    CHECK(python_float(std::numeric_limits<double>::quiet_NaN()) == "nan");
}

TEST_CASE("repr of a string prefers single quotes") {
    CHECK(python_repr("") == "''");
    CHECK(python_repr("abc") == "'abc'");
    CHECK(python_repr("it's") == "\"it's\"");
    CHECK(python_repr("say \"x\"") == "'say \"x\"'");
    CHECK(python_repr("it's \"x\"") == "'it\\'s \"x\"'");
}

TEST_CASE("repr of a string escapes backslashes and what is not printable") {
    CHECK(python_repr("a\\b\n\r\t") == "'a\\\\b\\n\\r\\t'");
    CHECK(python_repr(std::string("\0\x1f\x7f", 3)) == "'\\x00\\x1f\\x7f'");
    CHECK(python_repr("\u0085\u00a0\u00ad") == "'\\x85\\xa0\\xad'");
    CHECK(python_repr("\u200b\u2028\ufeff") == "'\\u200b\\u2028\\ufeff'");
    CHECK(python_repr("\U000e0041\U0010ffff") == "'\\U000e0041\\U0010ffff'");
    CHECK(python_repr("\u00e9\u65e5\U0001F41D") == "'\u00e9\u65e5\U0001F41D'");
}

TEST_CASE("repr of broken UTF-8 escapes the bytes") {
    CHECK(python_repr("a\xff\xc3") == "'a\\xff\\xc3'");
    CHECK(python_repr("\xe2\x82") == "'\\xe2\\x82'");
    CHECK(python_repr("\xc3(") == "'\\xc3('");
}

TEST_CASE("str prints a string bare and what is in a container as repr") {
    CHECK(str("\"it's\"") == "it's");
    CHECK(str("null") == "None");
    CHECK(str("true") == "True");
    CHECK(str("false") == "False");
    CHECK(str("1.0") == "1.0");
    CHECK(str("[]") == "[]");
    CHECK(str("{}") == "{}");
    CHECK(str(R"({"a": 1, "b": [1, "x", null, true, 2.50]})") == "{'a': 1, 'b': [1, 'x', None, True, 2.5]}");
    CHECK(str(R"({"it's": "\"", "\n": {}})") == "{\"it's\": '\"', '\\n': {}}");
}

TEST_CASE("json text is that of json.dumps with ensure_ascii off") {
    CHECK(dumps(R"({"b":[1,"é",null,true,false],"a":{"x":1.50}})") ==
          R"({"b": [1, "é", null, true, false], "a": {"x": 1.5}})");
    CHECK(dumps(R"("<a href='x'>&\"\\\/")") == R"("<a href='x'>&\"\\/")");
    CHECK(dumps(R"("\b\f\n\r\t\u0000\u001f\u007f\u2028")") == "\"\\b\\f\\n\\r\\t\\u0000\\u001f\x7f\u2028\"");
    CHECK(dumps("[ ]") == "[]");
    CHECK(dumps("{ }") == "{}");
    CHECK(dumps("[100000000000000000000, 1e5, 1E-7]") == "[100000000000000000000, 100000.0, 1e-07]");
}

TEST_CASE("numbers print as Python prints what json.loads() makes of them") {
    CHECK(str("-0") == "0");
    CHECK(str("1234567890123456789012345678901234567890") == "1234567890123456789012345678901234567890");
    CHECK(str("1.0") == "1.0");
    CHECK(str("-0.0") == "-0.0");
    CHECK(str("1E5") == "100000.0");
    CHECK(dumps("1e16") == "1e+16");
    CHECK(dumps("0.00001") == "1e-05");
    CHECK(dumps("1e-400") == "0.0");
}

TEST_CASE("truth is Python's") {
    for (const char* text : {"null", "false", "0", "-0", "0.0", "-0.0", "0e5", "\"\"", "[]", "{}"}) {
        const json::Value value = document(text);
        INFO(text);
        CHECK_FALSE(is_true(&value));
    }
    for (const char* text : {"true", "1", "0.1", "5e-324", "\"0\"", "[0]", "{\"\": null}"}) {
        const json::Value value = document(text);
        INFO(text);
        CHECK(is_true(&value));
    }
    CHECK_FALSE(is_true(nullptr));
}

}  // namespace
}  // namespace minim::chat
