// SPDX-License-Identifier: Apache-2.0
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

// Writes a GGUF file with two keys; an empty text leaves a key out.
void write_gguf(const std::string& path, const char* type, const char* architecture) {
    test::GgufWriter writer;
    if (*type != '\0') writer.add("general.type", type);
    if (*architecture != '\0') writer.add("general.architecture", architecture);
    writer.add_f32("some.weight", {4}, {1.0F, 2.0F, 3.0F, 4.0F});
    writer.write(path);
}

TEST_CASE("GGUF files that say that they hold no model are left out beside one") {
    struct Other {
        const char* name;
        const char* type;
        const char* architecture;
    };
    for (const Other& other :
         {Other{"imatrix.gguf", "imatrix", ""}, Other{"a-calibration.gguf", "", ""},
          Other{"mmproj-BF16.gguf", "mmproj", "clip"}, Other{"vision.gguf", "", "clip"},
          Other{"lora.gguf", "adapter", "minimax-m2"}, Other{"cv.gguf", "", "controlvector"}}) {
        CAPTURE(other.name);
        const TemporaryFolder folder;
        write_gguf(folder / other.name, other.type, other.architecture);
        CHECK(choose_file(folder.path()) == folder / other.name);  // opening it says what it is
        write_gguf(folder / "model.gguf", "model", "minimax-m2");
        CHECK(choose_file(folder.path()) == folder / "model.gguf");
        write_gguf(folder / "older.gguf", "", "minimax-m2");
        const auto error = error_of([&] { choose_file(folder.path()); });
        REQUIRE(error);
        CHECK(std::string(error->what())
                  .find("holds 2 GGUF models, open one of them: model.gguf, older.gguf") !=
              std::string::npos);
    }
}

TEST_CASE("a file that cannot be read stays a choice, a hidden one is none") {
    const TemporaryFolder folder;
    write_gguf(folder / "model.gguf", "model", "minimax-m2");
    touch(folder / "._model.gguf");
    CHECK(choose_file(folder.path()) == folder / "model.gguf");
    touch(folder / "damaged.gguf");
    const auto error = error_of([&] { choose_file(folder.path()); });
    REQUIRE(error);
    CHECK(error->status() == Status::invalid);
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
