// SPDX-License-Identifier: Apache-2.0
#include "base/json.h"

#include <clocale>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <string>

#include "base/error.h"
#include "support/catch.h"
#include "support/temporary_folder.h"

namespace minim::json {
namespace {

Value document(std::string_view text) {
    return parse(text, "doc", Source::argument);
}

std::string parse_error(std::string_view text) {
    try {
        document(text);
    } catch (const Error& error) {
        CHECK(error.status() == Status::invalid);
        return error.what();
    }
    return "no error";
}

Reason file_reason(std::string_view text) {
    try {
        parse(text, "file.json", Source::file);
    } catch (const Error& error) {
        CHECK(error.status() == Status::format);
        CHECK(std::string_view(error.what()).starts_with("file.json: "));
        return error.reason();
    }
    return Reason::none;
}

std::string digits(std::string_view text) {
    const Value value = document(text);
    REQUIRE(value.is_number());
    return value.text;
}

std::string nested(size_t depth) {
    return std::string(depth, '[') + std::string(depth, ']');
}

TEST_CASE("numbers are read alike whatever the locale's decimal point is") {
    const test::TemporaryFolder folder;
    const char* before = std::getenv("LOCPATH");
    const std::string path = before == nullptr ? "" : before;
    REQUIRE(::setenv("LOCPATH", folder.path().c_str(), 1) == 0);
    int n_found = 0;
    // One locale with a decimal comma, and one whose decimal point has two bytes.
    for (const std::string name : {"de_DE", "ps_AF"}) {
        const std::string make =
            "localedef -c -i " + name + " -f UTF-8 '" + (folder / (name + ".UTF-8")) + "' >/dev/null 2>&1";
        static_cast<void>(std::system(make.c_str()));
        if (std::setlocale(LC_NUMERIC, (name + ".UTF-8").c_str()) == nullptr) continue;
        ++n_found;
        CHECK(std::string(std::localeconv()->decimal_point) != ".");
        const Value numbers = document("[0.5, -1.25e3, 1E-2, 7, 2.0]");
        const char* const texts[] = {"0.5", "-1.25e3", "1E-2", "7", "2.0"};
        const double values[] = {0.5, -1250.0, 0.01, 7.0, 2.0};
        REQUIRE(numbers.items.size() == 5);
        for (size_t i = 0; i < 5; ++i) {
            INFO(name << ", " << texts[i]);
            CHECK(numbers.items[i].text == texts[i]);
            CHECK(numbers.items[i].number == values[i]);
        }
        CHECK(parse_error("[1e400]").find("out of range") != std::string::npos);
    }
    std::setlocale(LC_NUMERIC, "C");
    if (before == nullptr) {
        ::unsetenv("LOCPATH");
    } else {
        ::setenv("LOCPATH", path.c_str(), 1);
    }
    if (n_found == 0) WARN("skipped: localedef makes no locale here");
}

TEST_CASE("keys keep their order") {
    const Value value = document(R"({"z": 1, "a": 2, "m": 3})");
    CHECK(value.keys == std::vector<std::string>{"z", "a", "m"});
    CHECK(value.items[1].text == "2");
}

TEST_CASE("of a repeated key the last value stands at the first place") {
    const Value value = document(R"({"a": 1, "b": 2, "a": 3, "c": 4, "b": 5, "a": 6})");
    CHECK(value.keys == std::vector<std::string>{"a", "b", "c"});
    CHECK(value.items[0].text == "6");
    CHECK(value.items[1].text == "5");
    CHECK(value.items[2].text == "4");
}

TEST_CASE("numbers keep their digits") {
    CHECK(digits("0") == "0");
    CHECK(digits("-0") == "0");
    CHECK(digits("-7") == "-7");
    CHECK(digits("18446744073709551615") == "18446744073709551615");
    CHECK(digits("18446744073709551616") == "18446744073709551616");
    CHECK(digits("-9223372036854775809") == "-9223372036854775809");
    CHECK(digits("1234567890123456789012345678901234567890") == "1234567890123456789012345678901234567890");
    CHECK(digits("1.50") == "1.50");
    CHECK(document("1.50").number == 1.5);
    CHECK(document("-12").number == -12.0);
    CHECK(document("1e-400").number == 0.0);
}

TEST_CASE("an integer is what is written without fraction and exponent") {
    for (const char* text : {"0", "-7", "18446744073709551616"}) CHECK(document(text).is_integer());
    for (const char* text : {"1.0", "1e3", "-0.0", "\"1\"", "null"}) CHECK_FALSE(document(text).is_integer());
    CHECK(to_int64(document("9223372036854775807")) == INT64_MAX);
    CHECK(to_int64(document("-9223372036854775808")) == INT64_MIN);
    CHECK_FALSE(to_int64(document("9223372036854775808")));
    CHECK_FALSE(to_int64(document("1.0")));
    CHECK_FALSE(to_int64(document("\"1\"")));
}

TEST_CASE("a value is printed as JSON that reads back the same") {
    const std::string text =
        R"({"a":[1,-2.50,true,false,null],"b \"\\\n\u0001":{"c":"\t\r\b\f\u001f","d":[],"e":{}}})";
    CHECK(to_text(document(text)) == text);
}

TEST_CASE("a fault in a file is a format error with its reason") {
    CHECK(file_reason("[1,]") == Reason::format);
    CHECK(file_reason(std::string_view("[]\0", 3)) == Reason::format);
    CHECK(file_reason("[1e400]") == Reason::value);
    CHECK(file_reason(nested(k_max_depth + 1)) == Reason::limit);
    CHECK(file_reason("[1]") == Reason::none);
}

TEST_CASE("strings are unescaped to UTF-8") {
    CHECK(document(R"("\u00e9\ud83d\udc1d\n\/")").text == "\u00e9\U0001F41D\n/");
    CHECK(document(R"("a\u0000b")").text == std::string("a\0b", 3));
}

TEST_CASE("malformed JSON is an invalid argument with the place of the fault") {
    CHECK(parse_error("") == "doc: not valid JSON at byte 1");
    CHECK(parse_error("[1,]") == "doc: not valid JSON at byte 4");
    CHECK(parse_error("[1") == "doc: not valid JSON at byte 3");
    CHECK(parse_error("{} x") == "doc: not valid JSON at byte 4");
    CHECK(parse_error(std::string_view("[]\0[]", 5)) == "doc: not valid JSON at byte 3");
    for (const char* bad : {"{'a': 1}", "{\"a\"}", "{1: 2}", "NaN", "Infinity", "01", "1.", "+1", "\"a\nb\"",
                            "\"\\x\"", "\"\\ud800\"", "\"\\udc00x\"", "\"\xff\"", "\"\xc0\x80\"",
                            "\"\xed\xa0\x80\"", "[", "]", "nul", "/* c */ 1"}) {
        INFO(bad);
        CHECK(parse_error(bad).starts_with("doc: not valid JSON at byte "));
    }
}

TEST_CASE("a text that is not Unicode, and a number that is not finite, are named with their place") {
    const std::string surrogate = "half of a surrogate pair, which is not a character";
    CHECK(parse_error(R"([{"a": 1}, {"content": "x \ud83d y"}])") ==
          "doc[1].content: not valid JSON at byte 33: " + surrogate);
    CHECK(parse_error(R"({"a": {"b c": ["z", "\udc00"]}})") ==
          "doc.a[\"b c\"][1]: not valid JSON at byte 27: " + surrogate);
    CHECK(parse_error("[[],[\"surrogate \xE9t\xE9\"]]") ==
          "doc[1][0]: not valid JSON at byte 18: the text is not UTF-8");
    CHECK(parse_error("{\"k\xFF\": 1}") == "doc: not valid JSON at byte 4: the text is not UTF-8");
    const std::string number = "JSON has no NaN and no Infinity";
    CHECK(parse_error(R"({"x": [1, Infinity]})") == "doc.x[1]: not valid JSON at byte 11: " + number);
    CHECK(parse_error(R"({"x": {"y": -Infinity}})") == "doc.x.y: not valid JSON at byte 14: " + number);
    CHECK(parse_error(R"({"x": [], "y": NaN})") == "doc.y: not valid JSON at byte 16: " + number);
    // Texts that only look like NaN, Infinity or a parser's own error.
    CHECK(parse_error(R"(["surrogate; last read", ill-formed])") == "doc: not valid JSON at byte 26");
    CHECK(parse_error("[Nan]") == "doc: not valid JSON at byte 2");
    const std::string long_key(1000, 'k');
    CHECK(parse_error("{\"" + long_key + "\": NaN}").size() < 200);
}

TEST_CASE("a file may have the numbers that Python writes and JSON does not have") {
    const Value value = parse(R"({"a\"b": [NaN, "NaN", -Infinity, "\\"], "Infinity": Infinity, "n": -1})",
                              "doc", Source::file);
    REQUIRE(value.keys == std::vector<std::string>{"a\"b", "Infinity", "n"});
    const std::vector<Value>& list = value.items[0].items;
    REQUIRE(list.size() == 4);
    CHECK((list[0].is_number() && std::isnan(list[0].number) && list[0].text == "NaN"));
    CHECK(list[1].is_string("NaN"));
    CHECK((list[2].is_number() && list[2].number == -std::numeric_limits<double>::infinity()));
    CHECK(list[3].is_string("\\"));
    CHECK((value.items[1].is_number() && std::isinf(value.items[1].number)));
    CHECK_FALSE(value.items[1].is_integer());
    CHECK(value.items[2].number == -1.0);
    CHECK(to_text(value) == R"({"a\"b":[NaN,"NaN",-Infinity,"\\"],"Infinity":Infinity,"n":-1})");
    for (const char* bad :
         {"[Infinityx]", "[-NaN]", "[+Infinity]", "[NaN NaN]", "{NaN: 1}", "[\"NaN]", "[\"\\"}) {
        INFO(bad);
        CHECK(file_reason(bad) == Reason::format);
    }
}

TEST_CASE("a number beyond the range of a double is an invalid argument") {
    CHECK(parse_error("[1e400]").starts_with("doc: number out of range before byte "));
    CHECK(parse_error("-" + std::string(400, '9')).starts_with("doc: number out of range"));
}

TEST_CASE("nesting is limited, however deep the text goes") {
    CHECK(parse_error(nested(k_max_depth)) == "no error");
    const std::string too_deep = "doc: JSON nested deeper than 128 levels";
    CHECK(parse_error(nested(k_max_depth + 1)) == too_deep);
    CHECK(parse_error(std::string(1000000, '[')) == too_deep);
    std::string objects;
    for (int i = 0; i < 100000; ++i) objects += "{\"a\":";
    CHECK(parse_error(objects) == too_deep);
}

TEST_CASE("many keys in one object do not take quadratic time") {
    std::string json = "{";
    for (int i = 0; i < 200000; ++i) json += "\"k" + std::to_string(i % 150000) + "\":1,";
    json += "\"end\":2}";
    const Value value = document(json);
    CHECK(value.keys.size() == 150001);
    CHECK(value.keys.back() == "end");
}

TEST_CASE("find returns nothing for what is absent or no object") {
    const Value value = document(R"({"a": null})");
    REQUIRE(find(&value, "a") != nullptr);
    CHECK(find(&value, "a")->is_null());
    CHECK(find(&value, "b") == nullptr);
    CHECK(find(nullptr, "a") == nullptr);
    CHECK(find(find(&value, "a"), "a") == nullptr);
}

}  // namespace
}  // namespace minim::json
