// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/gguf_parts.h"

#include <filesystem>

#include "checkpoint/checkpoint.h"
#include "support.h"

namespace minim::checkpoint::testing {
namespace {

test::GgufWriter model() {
    test::GgufWriter writer;
    writer.add("general.architecture", "minimax-m2");
    for (int i = 0; i < 5; ++i) {
        const auto value = static_cast<float>(i);
        writer.add_f32(fmt::format("t{}", i), {3}, {value, value + 0.25F, value + 0.5F});
    }
    return writer;
}

std::string open(const std::string& path) {
    Logger log;
    return reason_of([&] { Checkpoint::open(path, log); });
}

// Writes one part by hand, with the split keys that the test gives.
template <typename Number, typename Count, typename Total>
void write_part(const std::string& path, Number number, Count count, Total total,
                const std::vector<std::string>& names) {
    test::GgufWriter part;
    part.add("split.no", number);
    part.add("split.count", count);
    part.add("split.tensors.count", total);
    for (const std::string& name : names) part.add_f32(name, {1}, {1});
    part.write(path);
}

TEST_CASE("part names are five digits of five digits") {
    const auto name = parse_part_name("a-b-00002-of-00003.gguf");
    REQUIRE(name);
    CHECK(name->prefix == "a-b");
    CHECK(name->number == 2);
    CHECK(name->count == 3);
    CHECK(part_file_name(*name) == "a-b-00002-of-00003.gguf");
    CHECK(parse_part_name("-00001-of-00001.gguf"));
    for (const char* wrong : {"a.gguf", "", "a-0001-of-0003.gguf", "a-00000-of-00003.gguf",
                              "a-00004-of-00003.gguf", "a-00001-of-00003.ggu", "a-0000x-of-00003.gguf",
                              "a-00001-of-+0003.gguf", "a_00001-of-00003.gguf", "00001-of-00003.gguf"}) {
        INFO(wrong);
        CHECK_FALSE(parse_part_name(wrong));
    }
}

TEST_CASE("a split model opens by any of its parts, one of them without tensors") {
    const TemporaryFolder folder;
    const std::string first = test::write_split(model(), folder.path(), "m", {0, 2, 3});
    for (size_t part = 1; part <= 3; ++part) {
        Logger log;
        Checkpoint checkpoint = Checkpoint::open(test::split_path(folder.path(), "m", part, 3), log);
        CHECK(checkpoint.metadata().string("general.architecture") == "minimax-m2");
        CHECK(checkpoint.files().size() == 3);
        CHECK(checkpoint.files()[0].path() == first);
        REQUIRE(checkpoint.tensors().size() == 5);
        CHECK(checkpoint.find("t1")->part == 1);
        CHECK(checkpoint.find("t4")->part == 2);
        checkpoint.map();
        for (int i = 0; i < 5; ++i) {
            float values[3];
            std::memcpy(values, checkpoint.data(*checkpoint.find(fmt::format("t{}", i))), sizeof(values));
            CHECK(values[2] == static_cast<float>(i) + 0.5F);
        }
    }
}

TEST_CASE("each part has its own alignment") {
    const TemporaryFolder folder;
    test::GgufWriter first;
    first.alignment = 64;
    first.add("split.no", uint16_t{0});
    first.add("split.count", uint16_t{2});
    first.add("split.tensors.count", int32_t{2});
    first.add_f32("a", {1}, {1});
    first.write(folder / "m-00001-of-00002.gguf");
    write_part(folder / "m-00002-of-00002.gguf", uint16_t{1}, uint16_t{2}, int32_t{2}, {"b"});
    CHECK(open(folder / "m-00001-of-00002.gguf") == "no error");
}

TEST_CASE("a missing part is an i/o error that names it") {
    const TemporaryFolder folder;
    const std::string first = test::write_split(model(), folder.path(), "m", {1, 2, 2});
    std::filesystem::remove(folder / "m-00003-of-00003.gguf");
    CHECK(open(first) == "io");
    Logger log;
    const auto error = error_of([&] { Checkpoint::open(first, log); });
    CHECK(error->status() == Status::io);
    CHECK(std::string(error->what()).find("m-00003-of-00003.gguf") != std::string::npos);
    std::filesystem::remove(first);
    CHECK(open(folder / "m-00002-of-00003.gguf") == "io");
}

TEST_CASE("a part under a name that does not tell the others is an error that says how they are named") {
    const TemporaryFolder folder;
    const std::string first = test::write_split(model(), folder.path(), "m", {2, 3});
    std::filesystem::rename(first, folder / "renamed.gguf");
    Logger log;
    const auto error = error_of([&] { Checkpoint::open(folder / "renamed.gguf", log); });
    REQUIRE(error);
    CHECK(error->reason() == Reason::io);
    CHECK(std::string(error->what()).find("PREFIX-00001-of-00002.gguf") != std::string::npos);
}

TEST_CASE("a name that contradicts the metadata is a wrong value") {
    const TemporaryFolder folder;
    test::write_split(model(), folder.path(), "m", {2, 3});
    std::filesystem::rename(folder / "m-00001-of-00002.gguf", folder / "n-00002-of-00002.gguf");
    CHECK(open(folder / "n-00002-of-00002.gguf") == "value");
    std::filesystem::rename(folder / "n-00002-of-00002.gguf", folder / "m-00001-of-00003.gguf");
    CHECK(open(folder / "m-00001-of-00003.gguf") == "value");
}

TEST_CASE("parts that disagree are wrong values") {
    const TemporaryFolder folder;
    const std::string first = folder / "m-00001-of-00002.gguf";
    const std::string second = folder / "m-00002-of-00002.gguf";
    const auto write_first = [&](int32_t total) {
        write_part(first, uint16_t{0}, uint16_t{2}, total, {"a"});
    };
    write_first(2);
    SECTION("the same index twice") {
        write_part(second, uint16_t{0}, uint16_t{2}, int32_t{2}, {"b"});
    }
    SECTION("another number of parts") {
        write_part(second, uint16_t{1}, uint16_t{3}, int32_t{2}, {"b"});
    }
    SECTION("no split keys at all") {
        test::GgufWriter plain;
        plain.add_f32("b", {1}, {1});
        plain.write(second);
    }
    SECTION("another total in the second part") {
        write_part(second, uint16_t{1}, uint16_t{2}, int32_t{3}, {"b"});
    }
    SECTION("a total that the tensors do not reach") {
        write_first(3);
        write_part(second, uint16_t{1}, uint16_t{2}, int32_t{3}, {"b"});
    }
    SECTION("a negative total") {
        write_first(-2);
        write_part(second, uint16_t{1}, uint16_t{2}, int32_t{-2}, {"b"});
    }
    CHECK(open(first) == "value");
}

TEST_CASE("an index that is no less than the count is a wrong value") {
    const TemporaryFolder folder;
    const std::string path = folder / "m-00003-of-00002.gguf";
    write_part(path, uint16_t{2}, uint16_t{2}, int32_t{1}, {"a"});
    CHECK(open(path) == "value");
    write_part(path, uint16_t{1}, uint16_t{1}, int32_t{1}, {"a"});
    CHECK(open(path) == "value");
    write_part(path, int16_t{-1}, uint16_t{2}, int32_t{1}, {"a"});
    CHECK(open(path) == "value");
    write_part(path, uint64_t{0}, uint64_t{1} << 62, int32_t{1}, {"a"});
    CHECK(open(path) == "value");
}

TEST_CASE("the split keys may have any integer type and no other") {
    const TemporaryFolder folder;
    const std::string first = folder / "m-00001-of-00002.gguf";
    write_part(folder / "m-00002-of-00002.gguf", int64_t{1}, uint8_t{2}, uint64_t{2}, {"b"});
    write_part(first, int8_t{0}, int32_t{2}, uint16_t{2}, {"a"});
    CHECK(open(first) == "no error");
    write_part(first, 0.0F, int32_t{2}, uint16_t{2}, {"a"});
    CHECK(open(first) == "value");
    write_part(first, int8_t{0}, true, uint16_t{2}, {"a"});
    CHECK(open(first) == "value");
    write_part(first, int8_t{0}, int32_t{2}, "2", {"a"});
    CHECK(open(first) == "value");
}

TEST_CASE("a count of one or none is a single file under any name") {
    const TemporaryFolder folder;
    for (const uint16_t count : {uint16_t{0}, uint16_t{1}}) {
        write_part(folder / "any.gguf", uint16_t{0}, count, int32_t{1}, {"a"});
        CHECK(open(folder / "any.gguf") == "no error");
    }
}

TEST_CASE("a tensor in two parts is a duplicate") {
    const TemporaryFolder folder;
    write_part(folder / "m-00001-of-00002.gguf", uint16_t{0}, uint16_t{2}, int32_t{2}, {"a"});
    write_part(folder / "m-00002-of-00002.gguf", uint16_t{1}, uint16_t{2}, int32_t{2}, {"a"});
    CHECK(open(folder / "m-00001-of-00002.gguf") == "duplicate");
}

TEST_CASE("the total must be in the first part") {
    const TemporaryFolder folder;
    test::GgufWriter first;
    first.add("split.no", uint16_t{0});
    first.add("split.count", uint16_t{2});
    first.write(folder / "m-00001-of-00002.gguf");
    test::GgufWriter second;
    second.add("split.no", uint16_t{1});
    second.add("split.count", uint16_t{2});
    second.write(folder / "m-00002-of-00002.gguf");
    CHECK(open(folder / "m-00001-of-00002.gguf") == "value");
}

}  // namespace
}  // namespace minim::checkpoint::testing
