// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/gguf_header.h"

#include "support.h"
#include "support/allocation_count.h"

namespace minim::checkpoint::testing {
namespace {

GgufHeader read(const test::GgufWriter& writer) {
    const std::vector<std::byte> bytes = writer.bytes();
    return read_gguf_header(ByteSource("m.gguf", bytes));
}

std::string reason(const test::GgufWriter& writer) {
    return reason_of([&] { read(writer); });
}

std::vector<std::byte> zeros(size_t count) {
    return std::vector<std::byte>(count);
}

TEST_CASE("shapes are outermost first and places count from the start of the file") {
    test::GgufWriter writer;
    writer.add("general.architecture", "minimax-m2");
    writer.add_f32("scalar", {}, {1});
    writer.add_f32("vector", {3}, {1, 2, 3});
    writer.add_tensor({"experts", 12, {256, 2, 3}, zeros(144 * 2 * 3)});
    const std::vector<std::byte> bytes = writer.bytes();
    const GgufHeader header = read_gguf_header(ByteSource("m.gguf", bytes));
    CHECK(header.version == 3);
    CHECK(header.alignment == 32);
    REQUIRE(header.tensors.size() == 3);
    CHECK(header.tensors[0].shape.empty());
    CHECK(header.tensors[0].bytes == 4);
    CHECK(header.tensors[1].shape == std::vector<int64_t>{3});
    CHECK(header.tensors[1].offset == header.tensors[0].offset + 32);
    CHECK(header.tensors[1].offset % 32 == 0);
    const Tensor& experts = header.tensors[2];
    CHECK(experts.name == "experts");
    CHECK(experts.type_name == "Q4_K");
    CHECK(experts.format == Format::q4_k);
    CHECK(experts.shape == std::vector<int64_t>{3, 2, 256});
    CHECK(experts.bytes == 144 * 2 * 3);
    CHECK(experts.offset + experts.bytes <= bytes.size());
}

TEST_CASE("a row header of the ik types counts once for every row") {
    test::GgufWriter writer;
    writer.add_tensor({"w", 144, {512, 3}, zeros((4 + 2 * 136) * 3)});
    CHECK(read(writer).tensors[0].bytes == (4 + 2 * 136) * 3);
    writer.pad_last = false;
    writer.tensors[0].data.pop_back();
    CHECK(reason(writer) == "truncated");
}

TEST_CASE("tensors may come in any order, with gaps, and with bytes after the last") {
    test::GgufWriter writer;
    writer.add_tensor({"late", 0, {8}, zeros(32), 320});
    writer.add_tensor({"early", 0, {8}, zeros(32), 64});
    writer.add_tensor({"nothing", 0, {0}, {}, 64});
    std::vector<std::byte> bytes = writer.bytes();
    bytes.resize(bytes.size() + 1000);
    const GgufHeader header = read_gguf_header(ByteSource("m.gguf", bytes));
    CHECK(header.tensors[0].offset == header.tensors[1].offset + 256);
    CHECK(header.tensors[2].bytes == 0);
}

TEST_CASE("tensors that overlap by one alignment are refused") {
    test::GgufWriter writer;
    writer.add_tensor({"b", 0, {9}, zeros(36), 32});
    writer.add_tensor({"a", 0, {16}, zeros(64), 0});
    CHECK(reason(writer) == "offset");
    writer.tensors[1].dims = {8};
    writer.tensors[1].data.resize(32);
    CHECK(reason(writer) == "no error");
}

TEST_CASE("versions other than 2 and 3 are refused, big-endian ones by that name") {
    test::GgufWriter writer;
    for (const uint32_t version : {2U, 3U}) {
        writer.version = version;
        CHECK(read(writer).version == version);
    }
    for (const uint32_t version : {0U, 1U, 4U, 0x03000000U}) {
        writer.version = version;
        CHECK(reason(writer) == "format");
    }
    const auto error = error_of([&] { read(writer); });
    CHECK(std::string(error->what()).find("big-endian") != std::string::npos);
}

TEST_CASE("an alignment is a u32 power of two up to 2^20") {
    test::GgufWriter writer;
    writer.add_f32("a", {1}, {1});
    for (const uint64_t alignment : {uint64_t{1}, uint64_t{8}, uint64_t{4096}, uint64_t{1} << 20}) {
        writer.alignment = alignment;
        CHECK(read(writer).alignment == alignment);
    }
    writer.alignment = uint64_t{1} << 21;
    CHECK(reason(writer) == "value");
    test::GgufWriter wrong_type;
    wrong_type.add("general.alignment", int32_t{32});
    CHECK(reason(wrong_type) == "value");
}

TEST_CASE("counts are bounded by the bytes that follow") {
    const auto counts = [](uint64_t tensors, uint64_t entries, size_t bytes) {
        test::ByteWriter out;
        out.raw(bytes_of("GGUF"));
        out.number(uint32_t{3});
        out.number(tensors);
        out.number(entries);
        for (size_t i = 0; i < bytes; ++i) out.number(uint8_t{0});
        const test::AllocationCount count;
        const std::string found = reason_of([&] { read_gguf_header(ByteSource("m.gguf", out.bytes)); });
        CHECK(count.total_bytes() < 200'000);
        return found;
    };
    CHECK(counts(0, 0, 0) == "no error");
    CHECK(counts(1, 0, 23) == "limit");
    CHECK(counts(0, 1, 12) == "limit");
    CHECK(counts(uint64_t{1} << 63, 0, 100) == "limit");
    CHECK(counts(0, UINT64_MAX, 100) == "limit");
    CHECK(counts((uint64_t{1} << 20) + 1, 0, 100) == "limit");
}

TEST_CASE("dimensions are bounded one by one, as a product and in bytes") {
    const auto shape = [](uint32_t type, std::vector<uint64_t> dims) {
        test::GgufWriter writer;
        writer.add_tensor({"a", type, std::move(dims), zeros(4)});
        return reason(writer);
    };
    CHECK(shape(0, {1, 1, 1, 1}) == "no error");
    CHECK(shape(0, {1, 1, 1, 1, 1}) == "shape");
    CHECK(shape(0, {uint64_t{1} << 63}) == "shape");
    CHECK(shape(0, {uint64_t{1} << 32, uint64_t{1} << 31}) == "shape");  // 2^63 elements
    CHECK(shape(0, {uint64_t{1} << 61}) == "shape");                     // 2^63 bytes
    CHECK(shape(0, {uint64_t{1} << 60}) == "truncated");
    CHECK(shape(2, {33}) == "shape");
    CHECK(shape(8, {}) == "shape");  // one element is no multiple of a block of 32
}

TEST_CASE("a type without a format is refused with the reason in the message") {
    for (const uint32_t type : {4U, 9U, 15U, 36U, 202U, 999U, 0xFFFF'FFFFU}) {
        test::GgufWriter writer;
        writer.add_tensor({"blk.0.ffn_up", type, {256}, zeros(512)});
        INFO(type);
        const auto error = error_of([&] { read(writer); });
        REQUIRE(error);
        CHECK(error->reason() == Reason::type);
        CHECK(std::string(error->what()).find(fmt::format("\"blk.0.ffn_up\" has type {}", type)) !=
              std::string::npos);
        if (type == 202) CHECK(std::string(error->what()).find("repacked file") != std::string::npos);
    }
}

TEST_CASE("an offset is aligned and inside the data") {
    const auto place = [](int64_t offset, std::vector<uint64_t> dims, size_t cut) {
        test::GgufWriter writer;
        writer.pad_last = false;
        writer.add_tensor({"a", 0, std::move(dims), zeros(64), 0});
        std::vector<std::byte> bytes = writer.bytes();
        // The offset is the last field before the padding: name 9, count 4, one dimension 8, type 4.
        const size_t at = 24 + 9 + 4 + 8 + 4;
        std::memcpy(bytes.data() + at, &offset, sizeof(offset));
        bytes.resize(bytes.size() - cut);
        return reason_of([&] { read_gguf_header(ByteSource("m.gguf", bytes)); });
    };
    CHECK(place(0, {16}, 0) == "no error");
    CHECK(place(0, {16}, 1) == "truncated");
    CHECK(place(32, {8}, 0) == "no error");
    CHECK(place(16, {8}, 0) == "offset");
    CHECK(place(64, {8}, 0) == "truncated");
    CHECK(place(64, {0}, 0) == "no error");
    CHECK(place(96, {8}, 0) == "offset");
    CHECK(place(-32, {8}, 0) == "offset");
}

TEST_CASE("a tensor name must be there, be unique and hold no NUL") {
    const auto names = [](const std::string& a, const std::string& b) {
        test::GgufWriter writer;
        writer.add_f32(a, {1}, {1});
        writer.add_f32(b, {1}, {1});
        return reason(writer);
    };
    CHECK(names("a", "b") == "no error");
    CHECK(names("a", "a") == "duplicate");
    CHECK(names("a", "") == "value");
    CHECK(names(std::string("a\0", 2), "b") == "value");
    CHECK(names(std::string(1000, 'n'), "b") == "no error");
    CHECK(names(std::string((size_t{64} << 10) + 1, 'n'), "b") == "limit");
}

}  // namespace
}  // namespace minim::checkpoint::testing
