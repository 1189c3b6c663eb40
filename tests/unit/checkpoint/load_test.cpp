// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/load.h"

#include <filesystem>

#include "checkpoint/checkpoint.h"
#include "support.h"
#include "support/load_reports.h"

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

uint64_t total_bytes() {
    uint64_t total = 0;
    for (const size_t size : k_sizes) total += size;
    return total;
}

TEST_CASE("tensors hold the bytes of the file, whether they stay there or not") {
    const TemporaryFolder folder;
    const std::string path = write_model(folder);
    for (const Residence how : {Residence::mapped, Residence::owned}) {
        Logger log;
        Checkpoint checkpoint = Checkpoint::open(path, log);
        checkpoint.load(how);
        for (size_t i = 0; i < k_sizes.size(); ++i) {
            const Tensor& tensor = *checkpoint.find(fmt::format("t{}", i));
            const std::vector<std::byte> expected = pattern(k_sizes[i], static_cast<uint32_t>(i));
            INFO(i);
            REQUIRE(tensor.bytes == k_sizes[i]);
            const View view = checkpoint.view(tensor, 0, tensor.bytes);
            CHECK(std::equal(expected.begin(), expected.end(), view.data));
            const std::byte* mapped = checkpoint.data(tensor);
            CHECK((mapped != nullptr) == (how == Residence::mapped));
            if (mapped != nullptr) CHECK(mapped == view.data);
        }
    }
}

TEST_CASE("data stays where it is when the checkpoint moves") {
    const TemporaryFolder folder;
    Logger log;
    Checkpoint checkpoint = Checkpoint::open(write_model(folder), log);
    checkpoint.load(Residence::mapped);
    const std::byte* before = checkpoint.data(*checkpoint.find("t0"));
    const Checkpoint moved = std::move(checkpoint);
    CHECK(moved.data(*moved.find("t0")) == before);
}

TEST_CASE("progress begins at nothing, never falls, has small steps and ends with everything") {
    const TemporaryFolder folder;
    const std::string path = write_model(folder);
    for (const Residence how : {Residence::mapped, Residence::owned}) {
        Logger log;
        Checkpoint checkpoint = Checkpoint::open(path, log);
        test::LoadReports reports;
        checkpoint.load(how, reports.progress());
        const std::vector<uint64_t>& done = reports.done;
        reports.check_complete();
        CHECK(reports.total == total_bytes());
        REQUIRE(done.size() >= 5);
        CHECK(done.front() == 0);
        for (size_t i = 1; i < done.size(); ++i) {
            CHECK(done[i] > done[i - 1]);
            CHECK(done[i] - done[i - 1] <= 16 * k_mib);
        }
    }
}

TEST_CASE("a load can be cancelled at every report and tried again") {
    const TemporaryFolder folder;
    Logger log;
    Checkpoint checkpoint = Checkpoint::open(write_model(folder), log);
    const Tensor& tensor = *checkpoint.find("t0");
    test::cancel_at_each(
        5, [&](const Progress& progress) { checkpoint.load(Residence::owned, progress); },
        [&] { CHECK_FALSE(checkpoint.is_loaded(tensor)); });
    checkpoint.load(Residence::owned);
    CHECK(checkpoint.is_loaded(tensor));
}

TEST_CASE("a cancel token stops a load before its next block") {
    const TemporaryFolder folder;
    Logger log;
    Checkpoint checkpoint = Checkpoint::open(write_model(folder), log);
    for (const Residence how : {Residence::mapped, Residence::owned}) {
        CancelToken token;
        uint64_t last = 0;
        const auto error = error_of([&] {
            checkpoint.load(
                how,
                [&](uint64_t done, uint64_t) {
                    last = done;
                    if (done > 0) token.trigger();
                    return true;
                },
                &token);
        });
        REQUIRE(error);
        CHECK(error->status() == Status::cancelled);
        CHECK(last <= 4 * k_mib);
    }
}

TEST_CASE("only wanted tensors are loaded, and only once") {
    const TemporaryFolder folder;
    Logger log;
    Checkpoint checkpoint = Checkpoint::open(write_model(folder), log);
    uint64_t total = 0;
    checkpoint.load(
        Residence::owned,
        [&](uint64_t, uint64_t all) {
            total = all;
            return true;
        },
        nullptr, [](const Tensor& tensor) { return tensor.name == "t3" || tensor.name == "t7"; });
    CHECK(total == 1064);
    CHECK(checkpoint.is_loaded(*checkpoint.find("t7")));
    CHECK_FALSE(checkpoint.is_loaded(*checkpoint.find("t0")));
    const auto unloaded = error_of([&] { checkpoint.data(*checkpoint.find("t0")); });
    REQUIRE(unloaded);
    CHECK(unloaded->status() == Status::internal);
    const auto again = error_of([&] { checkpoint.load(Residence::owned); });
    REQUIRE(again);
    CHECK(again->status() == Status::invalid);
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

TEST_CASE("bytes are read from their place") {
    const TemporaryFolder folder;
    Logger log;
    Checkpoint checkpoint = Checkpoint::open(write_model(folder), log);
    checkpoint.load(Residence::mapped);
    const Tensor& tensor = *checkpoint.find("t5");
    const std::vector<std::byte> expected = pattern(k_sizes[5], 5);
    std::vector<std::byte> out(1000);
    checkpoint.read(checkpoint.data(tensor) + 12345, out);
    CHECK(std::equal(out.begin(), out.end(), expected.begin() + 12345));
    const std::vector<std::byte> elsewhere = pattern(1000, 3);
    checkpoint.read(elsewhere.data(), out);
    CHECK(out == elsewhere);
    // Reading through the mapping of a file that has shrunk would end the process.
    std::filesystem::resize_file(checkpoint.files()[static_cast<size_t>(tensor.part)].path(), 100);
    const auto error = error_of([&] { checkpoint.read(checkpoint.data(tensor), out); });
    REQUIRE(error);
    CHECK(error->reason() == Reason::truncated);
}

TEST_CASE("ranges that are not mapped are read once for several users, and the latest are kept") {
    const TemporaryFolder folder;
    Logger log;
    Checkpoint checkpoint = Checkpoint::open(write_model(folder), log);
    checkpoint.load(Residence::owned);
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
    for (const Residence how : {Residence::mapped, Residence::owned}) {
        Logger log;
        Checkpoint checkpoint = Checkpoint::open(write_model(folder), log);
        std::filesystem::resize_file(folder / "m-00003-of-00003.gguf", 2 * k_mib);
        CHECK(reason_of([&] { checkpoint.load(how); }) == "truncated");
        CHECK_FALSE(checkpoint.is_loaded(*checkpoint.find("t0")));
    }
}

TEST_CASE("a checkpoint without tensors loads") {
    const TemporaryFolder folder;
    const std::string path = folder / "empty.gguf";
    test::GgufWriter().write(path);
    for (const Residence how : {Residence::mapped, Residence::owned}) {
        Logger log;
        Checkpoint checkpoint = Checkpoint::open(path, log);
        size_t calls = 0;
        checkpoint.load(
            how, [&](uint64_t done, uint64_t total) { return ++calls > 0 && done == 0 && total == 0; });
        CHECK(calls == 1);
    }
}

}  // namespace
}  // namespace minim::checkpoint::testing
