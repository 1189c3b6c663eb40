#include "checkpoint/choose_file.h"

#include <filesystem>

#include "support.h"

namespace minim::checkpoint::testing {
namespace {

void touch(const std::string& path) {
    test::write_bytes(path, {});
}

TEST_CASE("a folder is opened by its index, then by its one file, then by its GGUF file") {
    const TemporaryFolder folder;
    touch(folder / "notes.txt");
    touch(folder / "model.gguf");
    CHECK(choose_file(folder.path()) == folder / "model.gguf");
    touch(folder / "model.safetensors");
    CHECK(choose_file(folder.path()) == folder / "model.safetensors");
    touch(folder / "model.safetensors.index.json");
    CHECK(choose_file(folder.path()) == folder / "model.safetensors.index.json");
}

TEST_CASE("the parts of a split GGUF are one model, two sets are a choice for the caller") {
    const TemporaryFolder folder;
    for (const char* name : {"m-00002-of-00003.gguf", "m-00001-of-00003.gguf", "m-00003-of-00003.gguf"}) {
        touch(folder / name);
    }
    CHECK(choose_file(folder.path()) == folder / "m-00001-of-00003.gguf");
    touch(folder / "other.gguf");
    const auto error = error_of([&] { choose_file(folder.path()); });
    REQUIRE(error);
    CHECK(error->status() == Status::invalid);
    CHECK(std::string(error->what()).find("m-00001-of-00003.gguf, other.gguf") != std::string::npos);
}

TEST_CASE("a folder without a model is not found; a file or a missing path is left as it is") {
    const TemporaryFolder folder;
    const auto error = error_of([&] { choose_file(folder.path()); });
    REQUIRE(error);
    CHECK(error->status() == Status::not_found);
    touch(folder / "x.bin");
    CHECK(choose_file(folder / "x.bin") == folder / "x.bin");
    CHECK(choose_file(folder / "missing") == folder / "missing");
}

}  // namespace
}  // namespace minim::checkpoint::testing
