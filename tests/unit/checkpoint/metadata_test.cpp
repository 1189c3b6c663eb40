// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/metadata.h"

#include "checkpoint/byte_source.h"
#include "checkpoint/gguf_header.h"
#include "support.h"

namespace minim::checkpoint::testing {
namespace {

Metadata read(const test::GgufWriter& writer) {
    const std::vector<std::byte> bytes = writer.bytes();
    return read_gguf_header(ByteSource("m.gguf", bytes)).metadata;
}

test::GgufWriter all_types() {
    test::GgufWriter writer;
    writer.add("u8", uint8_t{200});
    writer.add("i8", int8_t{-3});
    writer.add("u16", uint16_t{65535});
    writer.add("i16", int16_t{-300});
    writer.add("u32", uint32_t{4'000'000'000});
    writer.add("i32", int32_t{-70'000});
    writer.add("u64", uint64_t{0xFFFF'FFFF'FFFF'FFFF});
    writer.add("i64", int64_t{-5'000'000'000});
    writer.add("f32", 0.5F);
    writer.add("f64", 1e-6);
    writer.add("yes", true);
    writer.add("no", false);
    writer.add("text", "MiniMax \xC3\xA9");
    writer.add("raw", std::string_view("\xFF\0\n", 3));
    writer.add("empty", "");
    writer.add_array<uint32_t>("numbers", {1, 2, 3});
    writer.add_array<int8_t>("small", {-1, 1});
    writer.add_array<uint64_t>("large", {1, uint64_t{1} << 63});
    writer.add_array<float>("scores", {0.5F, -1.0F});
    writer.add_array<double>("doubles", {2.0});
    writer.add_array<bool>("flags", {true, false, true});
    writer.add_array<std::string>("tokens", {"a", "", std::string("\0\xFF", 2), "last"});
    writer.add_array<std::string>("none", {});
    return writer;
}

TEST_CASE("a value of every integer type is read as the number it holds") {
    const Metadata metadata = read(all_types());
    CHECK(metadata.unsigned_integer("u8") == 200U);
    CHECK(metadata.unsigned_integer("u16") == 65535U);
    CHECK(metadata.unsigned_integer("u32") == 4'000'000'000U);
    CHECK(metadata.unsigned_integer("u64") == UINT64_MAX);
    CHECK(metadata.find("i8")->signed_at(0) == -3);
    CHECK(metadata.find("i16")->signed_at(0) == -300);
    CHECK(metadata.find("i32")->signed_at(0) == -70'000);
    CHECK(metadata.find("i64")->signed_at(0) == -5'000'000'000);
}

TEST_CASE("numbers, booleans and strings have their own access") {
    const Metadata metadata = read(all_types());
    CHECK(metadata.find("f32")->number_at(0) == 0.5);
    CHECK(metadata.find("f64")->number_at(0) == 1e-6);
    CHECK(metadata.find("yes")->unsigned_at(0) == 1);
    CHECK(metadata.find("no")->unsigned_at(0) == 0);
    CHECK(metadata.string("text") == "MiniMax \xC3\xA9");
    CHECK(metadata.string("raw") == std::string_view("\xFF\0\n", 3));
    CHECK(metadata.string("empty") == "");
}

TEST_CASE("arrays are read element by element") {
    const Metadata metadata = read(all_types());
    CHECK(metadata.integers("numbers") == std::vector<int64_t>{1, 2, 3});
    CHECK(metadata.integers("small") == std::vector<int64_t>{-1, 1});
    CHECK(metadata.find("scores")->number_at(1) == -1.0);
    CHECK(metadata.find("doubles")->number_at(0) == 2.0);
    CHECK(metadata.find("flags")->unsigned_at(1) == 0);
    const std::optional<StringArray> tokens = metadata.strings("tokens");
    REQUIRE(tokens);
    REQUIRE(tokens->size() == 4);
    CHECK((*tokens)[0] == "a");
    CHECK((*tokens)[1].empty());
    CHECK((*tokens)[2] == std::string_view("\0\xFF", 2));
    CHECK((*tokens)[3] == "last");
    CHECK(metadata.strings("none")->size() == 0);
}

TEST_CASE("a missing key is no value") {
    const Metadata metadata = read(all_types());
    CHECK(metadata.find("u") == nullptr);
    CHECK_FALSE(metadata.unsigned_integer("missing"));
    CHECK_FALSE(metadata.string("missing"));
    CHECK_FALSE(metadata.strings("missing"));
    CHECK_FALSE(metadata.integers("missing"));
    CHECK(Metadata().find("u8") == nullptr);
}

TEST_CASE("a value of another type is an error that names the key and both types") {
    const Metadata metadata = read(all_types());
    const auto error = error_of([&] { metadata.unsigned_integer("text"); });
    REQUIRE(error);
    CHECK(error->reason() == Reason::type);
    CHECK(error->facts().offset > 0);
    const std::string message = error->what();
    CHECK(message.find("m.gguf: metadata key \"text\" is string, not an integer") == 0);
    CHECK(reason_of([&] { metadata.unsigned_integer("f32"); }) == "type");
    CHECK(reason_of([&] { metadata.unsigned_integer("yes"); }) == "type");
    CHECK(reason_of([&] { metadata.unsigned_integer("numbers"); }) == "type");
    CHECK(reason_of([&] { metadata.string("tokens"); }) == "type");
    CHECK(reason_of([&] { metadata.strings("numbers"); }) == "type");
    CHECK(reason_of([&] { metadata.strings("text"); }) == "type");
    CHECK(reason_of([&] { metadata.integers("u8"); }) == "type");
    CHECK(reason_of([&] { metadata.integers("flags"); }) == "type");
}

TEST_CASE("a number out of range is a wrong value") {
    const Metadata metadata = read(all_types());
    CHECK(reason_of([&] { metadata.unsigned_integer("i8"); }) == "value");
    CHECK(reason_of([&] { metadata.integers("large"); }) == "value");
}

TEST_CASE("values are shown on one line, long arrays in part") {
    const Metadata metadata = read(all_types());
    const auto text = [&](std::string_view key, size_t most = 8) {
        return to_text(*metadata.find(key), most);
    };
    CHECK(text("u64") == "18446744073709551615");
    CHECK(text("i64") == "-5000000000");
    CHECK(text("f32") == "0.5");
    CHECK(text("yes") == "true");
    CHECK(text("raw") == "\"\\xFF\\x00\\x0A\"");
    CHECK(text("numbers") == "u32[3] {1, 2, 3}");
    CHECK(text("numbers", 2) == "u32[3] {1, 2, ...}");
    CHECK(text("numbers", 0) == "u32[3] {...}");
    CHECK(text("tokens", 2) == "string[4] {\"a\", \"\", ...}");
    CHECK(text("none") == "string[0] {}");
    CHECK(text("flags") == "bool[3] {true, false, true}");
}

TEST_CASE("entries keep the order of the file and outlive a move") {
    Metadata metadata = read(all_types());
    const std::string_view text = *metadata.string("text");
    const Metadata moved = std::move(metadata);
    CHECK(moved.entries().front().key == "u8");
    CHECK(moved.entries().back().key == "none");
    CHECK(moved.string("text")->data() == text.data());
}

TEST_CASE("a vocabulary of 200,000 strings is read in one piece") {
    test::GgufWriter writer;
    std::vector<std::string> tokens(200'000);
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = fmt::format("token {}", i);
    writer.add_array("tokenizer.ggml.tokens", tokens);
    const Metadata metadata = read(writer);
    const auto strings = metadata.strings("tokenizer.ggml.tokens");
    REQUIRE(strings->size() == tokens.size());
    bool same = true;
    for (size_t i = 0; i < tokens.size(); ++i) same = same && (*strings)[i] == tokens[i];
    CHECK(same);
}

}  // namespace
}  // namespace minim::checkpoint::testing
