// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/safetensors_header.h"

#include "support.h"

namespace minim::checkpoint::testing {
namespace {

SafetensorsHeader read(std::string_view json, size_t data_bytes) {
    const std::vector<std::byte> bytes = safetensors(json, data_bytes);
    return read_safetensors_header(ByteSource("m.safetensors", bytes));
}

std::string reason(std::string_view json, size_t data_bytes) {
    return reason_of([&] { read(json, data_bytes); });
}

// Returns the result for a header with one tensor "a" of the given fields, over eight bytes of data.
std::string one(std::string_view dtype, std::string_view shape, std::string_view range) {
    const std::string json =
        fmt::format(R"({{"a":{{"dtype":{},"shape":{},"data_offsets":{}}}}})", dtype, shape, range);
    return reason(json, 8);
}

TEST_CASE("tensors are found whatever their order, with the metadata beside them") {
    const std::string_view json =
        R"({"b":{"data_offsets":[4,8],"shape":[2,1],"dtype":"BF16"},"__metadata__":{"format":"pt","n":"1"},)"
        R"("a":{"dtype":"F8_E4M3","shape":[4],"data_offsets":[0,4],"extra":[{"x":null}]}}   )";
    const SafetensorsHeader header = read(json, 8);
    REQUIRE(header.tensors.size() == 2);
    const Tensor& b = header.tensors[0];
    CHECK(b.name == "b");
    CHECK(b.format == Format::bf16);
    CHECK(b.type_name == "BF16");
    CHECK(b.shape == std::vector<int64_t>{2, 1});
    CHECK(b.bytes == 4);
    CHECK(b.offset == 8 + json.size() + 4);
    const Tensor& a = header.tensors[1];
    CHECK_FALSE(a.format);
    CHECK(a.type_name == "F8_E4M3");
    CHECK(header.metadata.string("format") == "pt");
    CHECK(header.metadata.string("n") == "1");
}

TEST_CASE("every dtype has its size") {
    const std::pair<const char*, int> sizes[] = {
        {"BOOL", 8},    {"U8", 8},          {"I8", 8},          {"F8_E4M3", 8}, {"F8_E5M2", 8},
        {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"F16", 16},    {"BF16", 16},
        {"I16", 16},    {"U16", 16},        {"F32", 32},        {"I32", 32},    {"U32", 32},
        {"F64", 64},    {"I64", 64},        {"U64", 64},        {"C64", 64},    {"F4", 4},
        {"F6_E2M3", 6}, {"F6_E3M2", 6},
    };
    for (const auto& [name, bits] : sizes) {
        const size_t bytes = static_cast<size_t>(bits) * 4 / 8;
        INFO(name);
        CHECK(
            reason(fmt::format(R"({{"a":{{"dtype":"{}","shape":[4],"data_offsets":[0,{}]}}}})", name, bytes),
                   bytes) == "no error");
    }
    CHECK(one("\"F4\"", "[15]", "[0,8]") == "shape");  // seven and a half bytes
    CHECK(one("\"f32\"", "[2]", "[0,8]") == "type");
    CHECK(one("\"F12\"", "[2]", "[0,8]") == "type");
    CHECK(one("32", "[2]", "[0,8]") == "format");
}

TEST_CASE("a shape may be empty or hold a zero, and its size must be that of the range") {
    CHECK(one("\"F64\"", "[]", "[0,8]") == "no error");
    CHECK(one("\"F32\"", "[2,1]", "[0,8]") == "no error");
    CHECK(one("\"F32\"", "[3]", "[0,8]") == "shape");
    CHECK(one("\"F32\"", "[-2]", "[0,8]") == "shape");
    CHECK(one("\"F32\"", "[2.0]", "[0,8]") == "format");
    CHECK(one("\"F32\"", "[2e0]", "[0,8]") == "format");
    CHECK(one("\"F32\"", "[18446744073709551616]", "[0,8]") == "format");
    CHECK(one("\"F32\"", "[18446744073709551615]", "[0,8]") == "shape");
    CHECK(one("\"U8\"", "[4294967296,4294967296]", "[0,0]") == "shape");
    CHECK(one("\"F32\"", "[4611686018427387906]", "[0,8]") ==
          "shape");  // 2^62 + 2 floats: 8 bytes modulo 2^64
    CHECK(one("\"F32\"", "2", "[0,8]") == "format");
    CHECK(one("\"F32\"", "[\"2\"]", "[0,8]") == "format");
    CHECK(one("\"F32\"", "[[2]]", "[0,8]") == "format");
    std::string ones = "[8";
    for (int i = 0; i < 64; ++i) ones += ",1";
    CHECK(one("\"U8\"", ones + "]", "[0,8]") == "limit");
    CHECK(reason(R"({"a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}})", 0) == "no error");
}

TEST_CASE("a range is a pair, in order, inside the data") {
    CHECK(one("\"F32\"", "[2]", "[8,0]") == "offset");
    CHECK(one("\"F32\"", "[4]", "[0,16]") == "truncated");
    CHECK(one("\"F32\"", "[2]", "[0]") == "format");
    CHECK(one("\"F32\"", "[2]", "[0,8,8]") == "format");
    CHECK(one("\"F32\"", "[2]", "[]") == "format");
    CHECK(one("\"F32\"", "[2]", "[-1,7]") == "offset");
    CHECK(one("\"F32\"", "[2]", "8") == "format");
    CHECK(one("\"F32\"", "[2]", "[18446744073709551608,18446744073709551615]") == "shape");
    CHECK(one("\"U8\"", "[7]", "[18446744073709551608,18446744073709551615]") == "truncated");
}

TEST_CASE("ranges tile the data") {
    const auto two = [](std::string_view first, std::string_view second, size_t data_bytes) {
        return reason(fmt::format(R"({{"a":{{"dtype":"U8","shape":[4],"data_offsets":{}}},)"
                                  R"("b":{{"dtype":"U8","shape":[4],"data_offsets":{}}},)"
                                  R"("z":{{"dtype":"U8","shape":[0],"data_offsets":[4,4]}}}})",
                                  first, second),
                      data_bytes);
    };
    CHECK(two("[0,4]", "[4,8]", 8) == "no error");
    CHECK(two("[4,8]", "[0,4]", 8) == "no error");
    CHECK(two("[0,4]", "[2,6]", 6) == "offset");
    CHECK(two("[0,4]", "[0,4]", 4) == "offset");
    CHECK(two("[0,4]", "[5,9]", 9) == "offset");
    CHECK(two("[1,5]", "[5,9]", 9) == "offset");
    CHECK(two("[0,4]", "[4,8]", 9) == "offset");
    CHECK(reason("{}", 0) == "no error");
    CHECK(reason("{}", 1) == "offset");
}

TEST_CASE("the header ends with its object, and spaces alone may follow") {
    CHECK(reason("{}  ", 0) == "no error");
    CHECK(reason("{}\n", 0) == "format");
    CHECK(reason("{}\t", 0) == "format");
    CHECK(reason(std::string("{}\0", 3), 0) == "format");
    CHECK(reason("{}{}", 0) == "format");
    CHECK(reason(" {}", 0) == "format");
    CHECK(reason("[]", 0) == "format");
    CHECK(reason("\xEF\xBB\xBF{}", 0) == "format");
}

TEST_CASE("names, fields and metadata keys are unique after their escapes are resolved") {
    const std::string_view fields = R"({"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
    CHECK(reason(fmt::format(R"({{"a":{0},"\u0061":{0}}})", fields), 0) == "duplicate");
    CHECK(reason(R"({"a":{"dtype":"U8","dtype":"U8","shape":[0],"data_offsets":[0,0]}})", 0) == "duplicate");
    CHECK(reason(R"({"a":{"dtype":"U8","shape":[],"shape":[0],"data_offsets":[0,0]}})", 0) == "duplicate");
    CHECK(reason(R"({"__metadata__":{},"__metadata__":{}})", 0) == "duplicate");
    CHECK(reason(R"({"__metadata__":{"a":"1","a":"2"}})", 0) == "duplicate");
}

TEST_CASE("a missing field and a member that is no object are format errors") {
    CHECK(reason(R"({"a":{"shape":[0],"data_offsets":[0,0]}})", 0) == "format");
    CHECK(reason(R"({"a":{"dtype":"U8","data_offsets":[0,0]}})", 0) == "format");
    CHECK(reason(R"({"a":{"dtype":"U8","shape":[0]}})", 0) == "format");
    CHECK(reason(R"({"a":{}})", 0) == "format");
    CHECK(reason(R"({"a":null})", 0) == "format");
    CHECK(reason(R"({"a":[]})", 0) == "format");
    CHECK(reason(R"({"__metadata__":{"n":1}})", 0) == "format");
    CHECK(reason(R"({"__metadata__":[]})", 0) == "format");
    CHECK(reason(R"({"__metadata__":null})", 0) == "format");
}

TEST_CASE("the length of the header is judged before anything is read") {
    const auto length = [](uint64_t n) {
        test::ByteWriter out;
        out.number(n);
        out.raw(bytes_of("{}"));
        return reason_of([&] { read_safetensors_header(ByteSource("m", out.bytes)); });
    };
    CHECK(length(2) == "no error");
    CHECK(length(0) == "format");
    CHECK(length(3) == "truncated");
    CHECK(length(100'000'000) == "truncated");
    CHECK(length(100'000'001) == "limit");
    CHECK(length(UINT64_MAX) == "limit");
    CHECK(length(UINT64_MAX - 7) == "limit");
}

TEST_CASE("a damaged tensor is named with its place in the file") {
    const std::string_view json =
        R"({"ok":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"bad":{"dtype":"X"}})";
    const auto error = error_of([&] { read(json, 0); });
    REQUIRE(error);
    CHECK(error->facts().offset == static_cast<int64_t>(8 + json.find("\"X\"")));
    CHECK(std::string(error->what()).find("m.safetensors: dtype \"X\" is unknown") == 0);
}

}  // namespace
}  // namespace minim::checkpoint::testing
