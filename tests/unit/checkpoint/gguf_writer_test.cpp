// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/gguf_writer.h"

#include <algorithm>
#include <string>
#include <vector>

#include "base/file.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/gguf_header.h"
#include "support/catch.h"
#include "unit/checkpoint/support.h"

namespace minim::checkpoint {
namespace {

// A header's own view of a file: entries and tensors as the writer takes them.
struct Written {
    MetaEntries entries;
    std::vector<NewTensor> tensors;
};

Written as_written(const GgufHeader& header) {
    Written written;
    for (const Metadata::Entry& entry : header.metadata.entries())
        written.entries.emplace_back(entry.key, entry.value);
    for (const Tensor& tensor : header.tensors)
        written.tensors.push_back(
            {tensor.name, tensor.shape, traits(*tensor.format).gguf_type, tensor.bytes});
    return written;
}

std::vector<NewTensor> tensors_of(const std::vector<uint64_t>& sizes) {
    std::vector<NewTensor> tensors;
    for (const uint64_t size : sizes)
        tensors.push_back({"t" + std::to_string(tensors.size()), {static_cast<int64_t>(size)}, 24, size});
    return tensors;
}

using Counts = std::vector<int64_t>;

}  // namespace

TEST_CASE("the header of a model is written as it was read, byte for byte") {
    for (const std::string name : {"/minim-tiny-q8_0.gguf", "/minim-tiny-mix-ik.gguf"}) {
        const File file(MINIM_EXAMPLE_MODELS + name);
        const GgufHeader read = read_gguf_header(ByteSource(file));
        const Written written = as_written(read);
        const NewHeader header = make_gguf_header(written.entries, written.tensors);
        std::vector<std::byte> bytes(header.bytes.size());
        file.read_at(0, bytes);
        CHECK(bytes == header.bytes);
        CHECK(header.file_bytes == file.size());
        for (size_t i = 0; i < read.tensors.size(); ++i) CHECK(header.offsets[i] == read.tensors[i].offset);
    }
}

TEST_CASE("tensors lie at the alignment that the metadata state") {
    const auto tensors = tensors_of({1, 65, 64});
    for (const uint32_t alignment : {32U, 256U}) {
        MetaEntries entries;
        if (alignment != 32) entries.emplace_back("general.alignment", meta_value(alignment));
        const NewHeader header = make_gguf_header(entries, tensors);
        std::vector<std::byte> file = header.bytes;
        file.resize(header.file_bytes);
        const GgufHeader read = read_gguf_header(ByteSource("made", file));
        CHECK(read.alignment == alignment);
        REQUIRE(read.tensors.size() == 3);
        for (size_t i = 0; i < 3; ++i) {
            CHECK(read.tensors[i].offset == header.offsets[i]);
            CHECK(read.tensors[i].offset % alignment == 0);
            CHECK(read.tensors[i].bytes == tensors[i].bytes);
        }
    }
}

TEST_CASE("a part ends before the tensor that would exceed its limit") {
    // Padded to 32 bytes: 32, 64, 96, 32.
    const auto tensors = tensors_of({32, 40, 96, 1});
    CHECK(cut_into_parts(tensors, {}) == Counts{4});
    CHECK(cut_into_parts(tensors, {.tensors = 3}) == Counts{3, 1});
    CHECK(cut_into_parts(tensors, {.tensors = 2}) == Counts{2, 2});
    CHECK(cut_into_parts(tensors, {.bytes = 96}) == Counts{2, 1, 1});
    CHECK(cut_into_parts(tensors, {.bytes = 95}) == Counts{1, 1, 1, 1});
    CHECK(cut_into_parts(tensors, {.bytes = 128}) == Counts{2, 2});
    // The third tensor is above the limit and has a part of its own.
    CHECK(cut_into_parts(tensors, {.bytes = 64}) == Counts{1, 1, 1, 1});
    CHECK(cut_into_parts(tensors, {.bytes = 96, .tensors = 1}) == Counts{1, 1, 1, 1});
    CHECK(cut_into_parts(tensors, {.tensors = 3, .first_without_tensors = true}) == Counts{0, 3, 1});
    CHECK(cut_into_parts(tensors, {.counts = {1, 3}}) == Counts{1, 3});
    CHECK(cut_into_parts({}, {.bytes = 1}) == Counts{0});
}

TEST_CASE("only parts have the keys of a split, last and in the order of llama-gguf-split") {
    const MetaEntries own = {{"general.name", meta_text("x")}};
    CHECK(part_metadata(own, 0, 1, 7).size() == 1);
    const MetaEntries first = part_metadata(own, 0, 3, 7);
    const MetaEntries last = part_metadata(own, 2, 3, 7);
    REQUIRE(first.size() == 4);
    REQUIRE(last.size() == 3);
    CHECK(last[0].first == "split.no");
    CHECK(last[0].second.type == MetaType::u16);
    CHECK(last[0].second.unsigned_at(0) == 2);
    CHECK(last[1].first == "split.tensors.count");
    CHECK(last[1].second.type == MetaType::i32);
    CHECK(last[1].second.unsigned_at(0) == 7);
    CHECK(last[2].first == "split.count");
    CHECK(last[2].second.type == MetaType::u16);
    CHECK(last[2].second.unsigned_at(0) == 3);
    CHECK(first[0].first == "general.name");
    CHECK(first[1].second.unsigned_at(0) == 0);
}

TEST_CASE("more parts than their number can say are refused") {
    const auto tensors = tensors_of(std::vector<uint64_t>(70'000, 1));
    CHECK_THROWS_AS(cut_into_parts(tensors, {.tensors = 1}), Error);
}

}  // namespace minim::checkpoint
