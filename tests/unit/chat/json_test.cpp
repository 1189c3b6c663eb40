#include "chat/json.h"

#include <string>

#include "error_text.h"
#include "support/catch.h"

namespace minim::chat {
namespace {

std::string parse_error(std::string_view json) {
    return error_text([&] { parse_json(json, "doc"); });
}

std::string number(std::string_view json) {
    const Value value = parse_json(json, "doc");
    REQUIRE(value.kind == Value::Kind::number);
    return value.text;
}

std::string nested(size_t depth) {
    return std::string(depth, '[') + std::string(depth, ']');
}

TEST_CASE("keys keep their order") {
    const Value value = parse_json(R"({"z": 1, "a": 2, "m": 3})", "doc");
    CHECK(value.keys == std::vector<std::string>{"z", "a", "m"});
    CHECK(value.items[1].text == "2");
}

TEST_CASE("of a repeated key the last value stands at the first place") {
    const Value value = parse_json(R"({"a": 1, "b": 2, "a": 3, "c": 4, "b": 5, "a": 6})", "doc");
    CHECK(value.keys == std::vector<std::string>{"a", "b", "c"});
    CHECK(value.items[0].text == "6");
    CHECK(value.items[1].text == "5");
    CHECK(value.items[2].text == "4");
}

TEST_CASE("numbers are kept as Python prints them") {
    CHECK(number("0") == "0");
    CHECK(number("-0") == "0");
    CHECK(number("-7") == "-7");
    CHECK(number("18446744073709551615") == "18446744073709551615");
    CHECK(number("18446744073709551616") == "18446744073709551616");
    CHECK(number("-9223372036854775809") == "-9223372036854775809");
    CHECK(number("1234567890123456789012345678901234567890") == "1234567890123456789012345678901234567890");
    CHECK(number("1.0") == "1.0");
    CHECK(number("-0.0") == "-0.0");
    CHECK(number("1E5") == "100000.0");
    CHECK(number("1e16") == "1e+16");
    CHECK(number("0.00001") == "1e-05");
    CHECK(number("1e-400") == "0.0");
}

TEST_CASE("strings are unescaped to UTF-8") {
    CHECK(parse_json(R"("\u00e9\ud83d\udc1d\n\/")", "doc").text == "\u00e9\U0001F41D\n/");
    CHECK(parse_json(R"("a\u0000b")", "doc").text == std::string("a\0b", 3));
}

TEST_CASE("malformed JSON is an invalid argument with the place of the fault") {
    CHECK(parse_error("") == "invalid: doc: not valid JSON at byte 1");
    CHECK(parse_error("[1,]") == "invalid: doc: not valid JSON at byte 4");
    CHECK(parse_error("[1") == "invalid: doc: not valid JSON at byte 3");
    CHECK(parse_error("{} x") == "invalid: doc: not valid JSON at byte 4");
    CHECK(parse_error(std::string_view("[]\0[]", 5)) == "invalid: doc: not valid JSON at byte 3");
    for (const char* bad : {"{'a': 1}", "{\"a\"}", "{1: 2}", "NaN", "Infinity", "01", "1.", "+1", "\"a\nb\"",
                            "\"\\x\"", "\"\\ud800\"", "\"\\udc00x\"", "\"\xff\"", "\"\xc0\x80\"",
                            "\"\xed\xa0\x80\"", "[", "]", "nul", "/* c */ 1"}) {
        INFO(bad);
        CHECK(parse_error(bad).starts_with("invalid: doc: not valid JSON at byte "));
    }
}

TEST_CASE("a number beyond the range of a double is an invalid argument") {
    CHECK(parse_error("[1e400]").starts_with("invalid: doc: number out of range before byte "));
    CHECK(parse_error("-" + std::string(400, '9')).starts_with("invalid: doc: number out of range"));
}

TEST_CASE("nesting is limited, however deep the text goes") {
    CHECK(parse_error(nested(k_max_json_depth)) == "no error");
    const std::string too_deep = "invalid: doc: JSON nested deeper than 128 levels";
    CHECK(parse_error(nested(k_max_json_depth + 1)) == too_deep);
    CHECK(parse_error(std::string(1000000, '[')) == too_deep);
    std::string objects;
    for (int i = 0; i < 100000; ++i) objects += "{\"a\":";
    CHECK(parse_error(objects) == too_deep);
}

TEST_CASE("many keys in one object do not take quadratic time") {
    std::string json = "{";
    for (int i = 0; i < 200000; ++i) json += "\"k" + std::to_string(i % 150000) + "\":1,";
    json += "\"end\":2}";
    const Value value = parse_json(json, "doc");
    CHECK(value.keys.size() == 150001);
    CHECK(value.keys.back() == "end");
}

TEST_CASE("find returns nothing for what is absent or no object") {
    const Value value = parse_json(R"({"a": null})", "doc");
    REQUIRE(find(&value, "a") != nullptr);
    CHECK(find(&value, "a")->is_null());
    CHECK(find(&value, "b") == nullptr);
    CHECK(find(nullptr, "a") == nullptr);
    CHECK(find(find(&value, "a"), "a") == nullptr);
}

TEST_CASE("truth is Python's") {
    for (const char* json : {"null", "false", "0", "-0", "0.0", "-0.0", "0e5", "\"\"", "[]", "{}"}) {
        const Value value = parse_json(json, "doc");
        INFO(json);
        CHECK_FALSE(is_true(&value));
    }
    for (const char* json : {"true", "1", "0.1", "5e-324", "\"0\"", "[0]", "{\"\": null}"}) {
        const Value value = parse_json(json, "doc");
        INFO(json);
        CHECK(is_true(&value));
    }
    CHECK_FALSE(is_true(nullptr));
}

}  // namespace
}  // namespace minim::chat
