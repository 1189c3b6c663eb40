// SPDX-License-Identifier: Apache-2.0

#include <filesystem>

#include "checkpoint/checkpoint.h"
#include "support.h"

namespace minim::checkpoint::testing {
namespace {

constexpr uint64_t k_mib = uint64_t{1} << 20;

std::vector<std::byte> pattern(size_t bytes, uint32_t seed) {
    std::vector<std::byte> out(bytes);
    uint32_t state = seed * 2654435761U + 1;
    for (std::byte& b : out) {
        state = state * 1664525U + 1013904223U;
        b = static_cast<std::byte>(state >> 24U);
    }
    return out;
}

// Sizes around that of a block and the alignment, and 0.
const std::vector<size_t> k_sizes = {9 * k_mib + 4, 4, 0, 64, 60, 4 * k_mib, 4 * k_mib + 4, 1000};

std::string write_model(const TemporaryFolder& folder) {
    test::GgufWriter writer;
    for (size_t i = 0; i < k_sizes.size(); ++i) {
        writer.add_tensor(
            {fmt::format("t{}", i), 24, {k_sizes[i]}, pattern(k_sizes[i], static_cast<uint32_t>(i))});
    }
    return test::write_split(writer, folder.path(), "m", {3, 0, 5});
}

TEST_CASE("tensors hold the bytes of the file, whether they stay there or not") {
    const TemporaryFolder folder;
    const std::string path = write_model(folder);
    for (const HostStorage how : {HostStorage::mapped, HostStorage::owned}) {
        Logger log;
        Checkpoint checkpoint = Checkpoint::open(path, log);
        if (how == HostStorage::mapped) checkpoint.map();
        for (size_t i = 0; i < k_sizes.size(); ++i) {
            const Tensor& tensor = *checkpoint.find(fmt::format("t{}", i));
            const std::vector<std::byte> expected = pattern(k_sizes[i], static_cast<uint32_t>(i));
            INFO(i);
            REQUIRE(tensor.bytes == k_sizes[i]);
            const View view = checkpoint.view(tensor, 0, tensor.bytes);
            CHECK(std::equal(expected.begin(), expected.end(), view.data));
            const std::byte* mapped = checkpoint.data(tensor);
            CHECK((mapped != nullptr) == (how == HostStorage::mapped));
            if (mapped != nullptr) CHECK(mapped == view.data);
        }
    }
}

TEST_CASE("data stays where it is when the checkpoint moves") {
    const TemporaryFolder folder;
    Logger log;
    Checkpoint checkpoint = Checkpoint::open(write_model(folder), log);
    checkpoint.map();
    const std::byte* before = checkpoint.data(*checkpoint.find("t0"));
    const Checkpoint moved = std::move(checkpoint);
    CHECK(moved.data(*moved.find("t0")) == before);
}

TEST_CASE("a part of a tensor is read without loading it") {
    const TemporaryFolder folder;
    Logger log;
    const Checkpoint checkpoint = Checkpoint::open(write_model(folder), log);
    const Tensor& tensor = *checkpoint.find("t5");
    const std::vector<std::byte> expected = pattern(k_sizes[5], 5);
    std::vector<std::byte> out(1000);
    checkpoint.read(tensor, 12345, out);
    CHECK(std::equal(out.begin(), out.end(), expected.begin() + 12345));
    checkpoint.read(tensor, tensor.bytes, {});
    CHECK(error_of([&] { checkpoint.read(tensor, tensor.bytes - 999, out); })->status() == Status::internal);
    CHECK(error_of([&] { checkpoint.read(tensor, UINT64_MAX, out); })->status() == Status::internal);
}

TEST_CASE("ranges that are not mapped are read once for several users, and the latest are kept") {
    const TemporaryFolder folder;
    Logger log;
    Checkpoint checkpoint = Checkpoint::open(write_model(folder), log);
    const Tensor& tensor = *checkpoint.find("t6");
    const std::vector<std::byte> expected = pattern(k_sizes[6], 6);
    const View first = checkpoint.view(tensor, 100, 50);
    CHECK(std::equal(expected.begin() + 100, expected.begin() + 150, first.data));
    CHECK(checkpoint.view(tensor, 100, 50).data == first.data);
    CHECK(checkpoint.view(tensor, 100, 49).data != first.data);
    for (uint64_t from = 0; from < 100; ++from) {
        const View other = checkpoint.view(tensor, from, 10);
        CHECK(std::equal(other.data, other.data + 10, expected.begin() + static_cast<int64_t>(from)));
        CHECK(checkpoint.view(tensor, from, 10).data == other.data);
    }
    CHECK(checkpoint.view(tensor, 100, 50).data != first.data);  // `first` still holds the old bytes
    CHECK(std::equal(expected.begin() + 100, expected.begin() + 150, first.data));
}

TEST_CASE("a file that shrank after it was opened is truncated") {
    const TemporaryFolder folder;
    for (const HostStorage how : {HostStorage::mapped, HostStorage::owned}) {
        Logger log;
        Checkpoint checkpoint = Checkpoint::open(write_model(folder), log);
        std::filesystem::resize_file(folder / "m-00003-of-00003.gguf", 2 * k_mib);
        CHECK(reason_of([&] { how == HostStorage::mapped ? checkpoint.map() : checkpoint.check_sizes(); }) ==
              "truncated");
        CHECK(checkpoint.data(*checkpoint.find("t0")) == nullptr);
    }
}

TEST_CASE("a checkpoint without tensors is mapped") {
    const TemporaryFolder folder;
    const std::string path = folder / "empty.gguf";
    test::GgufWriter().write(path);
    Logger log;
    Checkpoint checkpoint = Checkpoint::open(path, log);
    checkpoint.map();
    CHECK(checkpoint.tensors().empty());
}

}  // namespace
}  // namespace minim::checkpoint::testing
