// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/json_reader.h"

#include <nlohmann/json.hpp>

#include "support.h"

namespace minim::checkpoint::testing {
namespace {

std::string reason_of_value(std::string_view text) {
    return reason_of([&] {
        JsonReader json("j", text, 0);
        json.skip_value();
        json.end_of_text(false);
    });
}

std::string read_string(std::string_view text) {
    JsonReader json("j", text, 0);
    return json.string("a string");
}

std::string number(std::string_view text) {
    JsonReader json("j", text, 0);
    return reason_of([&] { json.whole_number("n", Reason::shape); });
}

TEST_CASE("objects and arrays are read in order") {
    JsonReader json("j", R"( {"a" : [1, 2 ,3], "b":{}, "c":[] , "d": "x"} )", 0);
    std::string name;
    json.begin_object("the root");
    REQUIRE(json.next_member(name));
    CHECK(name == "a");
    json.begin_array("a");
    uint64_t sum = 0;
    while (json.next_element()) sum += json.whole_number("n", Reason::format);
    CHECK(sum == 6);
    REQUIRE(json.next_member(name));
    CHECK(name == "b");
    json.begin_object("b");
    std::string inner;
    CHECK_FALSE(json.next_member(inner));
    REQUIRE(json.next_member(name));
    json.begin_array("c");
    CHECK_FALSE(json.next_element());
    REQUIRE(json.next_member(name));
    CHECK(name == "d");
    CHECK(json.string("d") == "x");
    CHECK_FALSE(json.next_member(name));
    json.end_of_text(true);
}

TEST_CASE("the reader accepts exactly what a JSON library accepts") {
    const char* const texts[] = {
        "0",
        "-0",
        "10",
        "-1.5e+3",
        "1E2",
        "true",
        "false",
        "null",
        "\"\"",
        "[]",
        "{}",
        "[[],{}]",
        R"({"a":{"b":[1,{"c":null}]}})",
        R"("\u00e9\ud83d\ude00\n\/")",
        " [ 1 , 2 ] \n",
        "",
        " ",
        "01",
        "-",
        "+1",
        ".5",
        "1.",
        "1e",
        "1e+",
        "0x1",
        "tru",
        "nul",
        "True",
        "NaN",
        "Infinity",
        "[1,]",
        "[,1]",
        "[1 2]",
        "[",
        "]",
        "{\"a\"}",
        "{\"a\":}",
        "{\"a\":1,}",
        "{a:1}",
        "{,}",
        "{\"a\":1 \"b\":2}",
        "\"",
        "\"\\",
        "\"\\x\"",
        "\"\\u12\"",
        "\"\\u12g4\"",
        "\"\t\"",
        "\"\\ud800\"",
        "\"\\udc00\"",
        "\"\\ud800\\ud800\"",
        "\"\\ud800x\"",
        "\"\xFF\"",
        "\"\xC3\"",
        "\"\xED\xA0\x80\"",
        "1 2",
        "{}x",
        "[1]]",
        "// comment\n1",
        "'a'",
        "[1}",
        "{\"a\":1]",
    };
    for (const char* text : texts) {
        INFO(text);
        CHECK((reason_of_value(text) == "no error") == nlohmann::json::accept(text));
    }
    CHECK(reason_of_value(std::string_view("{}\0", 3)) == "format");
    CHECK(reason_of_value("\xEF\xBB\xBF{}") == "format");  // a byte-order mark, which the library skips
}

TEST_CASE("escapes become the characters they stand for") {
    CHECK(read_string(R"("a\"\\\/\b\f\n\r\tz")") == "a\"\\/\b\f\n\r\tz");
    CHECK(read_string(R"("\u0041\u00e9\u20AC\uD83D\uDE00")") == "A\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80");
    CHECK(read_string(R"("\u0000")") == std::string(1, '\0'));
    CHECK(read_string("\"\xC3\xA9\"") == "\xC3\xA9");
}

TEST_CASE("a whole number is exact up to 2^64 - 1 and nothing else") {
    JsonReader json("j", "18446744073709551615", 0);
    CHECK(json.whole_number("n", Reason::format) == UINT64_MAX);
    CHECK(number("0") == "no error");
    CHECK(number("18446744073709551616") == "format");
    CHECK(number("99999999999999999999999999999999") == "format");
    CHECK(number("2.5") == "format");
    CHECK(number("-2.5") == "format");
    CHECK(number("1e3") == "format");
    CHECK(number("1E+3") == "format");
    CHECK(number("-2") == "shape");
    CHECK(number("-0") == "shape");
    CHECK(number("01") == "format");
    CHECK(number("\"1\"") == "format");
    CHECK(number("null") == "format");
}

TEST_CASE("an optional number is skipped where it is something else") {
    JsonReader json("j", R"([12, 1.5, -3, "12", {"a": [1]}, 18446744073709551616, 7])", 0);
    json.begin_array("the root");
    std::vector<std::optional<uint64_t>> found;
    while (json.next_element()) found.push_back(json.optional_whole_number());
    const std::optional<uint64_t> none;
    CHECK(found == std::vector<std::optional<uint64_t>>{12, none, none, none, none, none, 7});
}

TEST_CASE("nesting stops at 16 levels without recursion") {
    const auto nested = [](size_t levels) { return std::string(levels, '[') + std::string(levels, ']'); };
    CHECK(reason_of_value(nested(16)) == "no error");
    CHECK(reason_of_value(nested(17)) == "format");
    CHECK(reason_of_value(std::string(10'000'000, '[')) == "format");
}

TEST_CASE("errors name the file and the byte, counted from the start of the file") {
    JsonReader json("shard.safetensors", "{\"a\":x}", 8);
    std::string name;
    json.begin_object("the header");
    json.next_member(name);
    const auto error = error_of([&] { json.skip_value(); });
    REQUIRE(error);
    CHECK(error->facts().offset == 13);
    CHECK(std::string(error->what()) == "shard.safetensors: invalid JSON: a value expected (byte 13)");
}

}  // namespace
}  // namespace minim::checkpoint::testing
