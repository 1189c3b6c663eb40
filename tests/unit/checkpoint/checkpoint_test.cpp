// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/checkpoint.h"

#include <fcntl.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "checkpoint/text_file.h"
#include "support.h"

namespace minim::checkpoint::testing {
namespace {

TEST_CASE("a GGUF file without the usual ending opens by its magic") {
    const TemporaryFolder folder;
    test::GgufWriter writer;
    writer.add("general.architecture", "minimax-m2");
    writer.add_f32("a", {2, 3}, {1, 2, 3, 4, 5, 6});
    writer.add_f32("b", {1}, {7});
    writer.write(folder / "sha256-0123");
    const Lines lines;
    const Checkpoint checkpoint = Checkpoint::open(folder / "sha256-0123", lines.log);
    CHECK(checkpoint.container() == Container::gguf);
    CHECK(checkpoint.folder() == folder.path());
    CHECK(checkpoint.tensor_bytes() == 28);
    CHECK(checkpoint.file_bytes() == std::filesystem::file_size(folder / "sha256-0123"));
    REQUIRE(checkpoint.find("b") != nullptr);
    CHECK(checkpoint.find("b")->index == 1);
    CHECK(checkpoint.find("a")->shape == std::vector<int64_t>{3, 2});
    CHECK(checkpoint.find("c") == nullptr);
    CHECK(lines.holding("2 tensors, 28 bytes in 1 file(s)") == 1);
}

TEST_CASE("a missing file is not found, a file of another kind a format error") {
    const TemporaryFolder folder;
    Logger log;
    const auto missing = error_of([&] { Checkpoint::open(folder / "missing.gguf", log); });
    REQUIRE(missing);
    CHECK(missing->status() == Status::not_found);
    test::write_bytes(folder / "text.gguf", bytes_of("this is no model file at all"));
    CHECK(reason_of([&] { Checkpoint::open(folder / "text.gguf", log); }) == "format");
    CHECK(error_of([&] { Checkpoint::open("", log); })->status() == Status::invalid);
}

TEST_CASE("a folder opens as the model in it") {
    const TemporaryFolder folder;
    test::write_bytes(folder / "model.safetensors",
                      safetensors(R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}})", 3));
    Logger log;
    const Checkpoint checkpoint = Checkpoint::open(folder.path(), log);
    CHECK(checkpoint.container() == Container::safetensors);
    CHECK(checkpoint.folder() == folder.path());
    CHECK(checkpoint.find("a")->type_name == "U8");
}

TEST_CASE("an open folder stays the one that was opened") {
    const TemporaryFolder folder;
    test::write_bytes(folder / "model.safetensors",
                      safetensors(R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}})", 3));
    test::write_bytes(folder / "beside.txt", bytes_of("text"));
    Logger log;
    const int descriptor = ::open(folder.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const Checkpoint checkpoint = Checkpoint::open("/dev/fd/" + std::to_string(descriptor), log);
    ::close(descriptor);
    const TemporaryFolder other;
    const int reused = ::open(other.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CHECK(reused == descriptor);
    CHECK(checkpoint.find("a") != nullptr);
    CHECK(read_text_file(checkpoint.folder() + "/beside.txt", 100) == "text");
    ::close(reused);
    test::expect_error(Status::io, "descriptor",
                       [&] { Checkpoint::open("/dev/fd/" + std::to_string(reused), log); });
}

TEST_CASE("an importance matrix opens as a container") {
    const TemporaryFolder folder;
    test::GgufWriter writer;
    writer.add("general.type", "imatrix");
    writer.add_f32("blk.0.ffn_up.weight.in_sum2", {4}, {1, 2, 3, 4});
    writer.write(folder / "imatrix.gguf");
    Logger log;
    CHECK(Checkpoint::open(folder / "imatrix.gguf", log).metadata().string("general.type") == "imatrix");
}

}  // namespace
}  // namespace minim::checkpoint::testing
