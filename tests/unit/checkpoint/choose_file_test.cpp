// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/choose_file.h"

#include <filesystem>

#include "checkpoint/checkpoint.h"
#include "checkpoint/file_names.h"
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

std::string folder_error(const TemporaryFolder& folder) {
    const auto error = error_of([&] { choose_file(folder.path()); });
    REQUIRE(error);
    CHECK(error->status() == Status::not_found);
    return std::string(error->what()).substr(folder.path().size());
}

TEST_CASE("names in capital letters are names") {
    const TemporaryFolder folder;
    touch(folder / "MODEL.GGUF");
    CHECK(choose_file(folder.path()) == folder / "MODEL.GGUF");
    const TemporaryFolder parts;
    for (const char* name : {"M-00002-of-00002.GGUF", "M-00001-of-00002.GGUF"}) touch(parts / name);
    CHECK(choose_file(parts.path()) == parts / "M-00001-of-00002.GGUF");
}

TEST_CASE("one safetensors file or index of another name is the model, several files need an index") {
    const TemporaryFolder folder;
    touch(folder / "tuned.safetensors");
    CHECK(choose_file(folder.path()) == folder / "tuned.safetensors");
    touch(folder / "tuned-2.safetensors");
    CHECK(folder_error(folder).find(
              "2 safetensors files (tuned-2.safetensors, tuned.safetensors), and no model.safetensors"
              ".index.json") != std::string::npos);
    touch(folder / "tuned.safetensors.index.json");
    CHECK(choose_file(folder.path()) == folder / "tuned.safetensors.index.json");
    touch(folder / "other.safetensors.index.json");
    test::expect_error(Status::invalid, "open one of them: other.safetensors.index.json, tuned",
                       [&] { choose_file(folder.path()); });
    const TemporaryFolder shard;
    touch(shard / "model-00001-of-00002.safetensors");
    CHECK(folder_error(shard).find("1 safetensors files (model-00001-of-00002.safetensors)") !=
          std::string::npos);
}

TEST_CASE("a folder without a model says what it holds") {
    struct Case {
        const char* file;
        const char* what;
    };
    for (const Case& c : {Case{"m.gguf.part2of2", "one part of a file that was cut"},
                          Case{"m.gguf.crdownload", "has not finished"},
                          Case{"pytorch_model.bin", "it holds pytorch_model.bin: only safetensors and GGUF"},
                          Case{"m.zip", "it holds m.zip: only"}, Case{"README.md", "holds no model"}}) {
        const TemporaryFolder folder;
        touch(folder / c.file);
        INFO(folder_error(folder));
        CHECK(folder_error(folder).find(c.what) != std::string::npos);
    }
    const TemporaryFolder folder;
    std::filesystem::create_directories(folder / "snapshots/0123");
    std::filesystem::create_directories(folder / "blobs");
    std::filesystem::create_directories(folder / "UD-Q4_K_XL");
    touch(folder / "snapshots/0123/model.safetensors");
    touch(folder / "UD-Q4_K_XL/m.gguf");
    CHECK(folder_error(folder).find("open one of them: UD-Q4_K_XL, snapshots/0123") != std::string::npos);
}

TEST_CASE("names say that a file is one piece of another, or an unfinished download") {
    for (const char* name :
         {"m.gguf.part1of2", "m.gguf.part2of2", "m.gguf.part-1-of-2", "m.gguf.part01", "m.gguf.part_aa",
          "m.gguf.partb", "m.gguf.1", "m.gguf.001", "m.gguf.aa", "m.gguf-split-a", "m.gguf.split-ab",
          "m.gguf.00001-of-2", "m.gguf_1of3", "M.GGUF.PART1OF2", "m.safetensors.part3", "m.safetensors.00",
          "model.part1of2", "model-part-2", "m.gguf.chunk3"}) {
        INFO(name);
        CHECK(describe_name(name).find("one part of a file that was cut into pieces") != std::string::npos);
    }
    for (const char* name : {"m.gguf.part", "m.gguf.crdownload", "m.gguf.incomplete", "m.safetensors.aria2",
                             "m.GGUF.Download"}) {
        INFO(name);
        CHECK(describe_name(name).find("has not finished") != std::string::npos);
    }
    for (const char* name :
         {"m.gguf", "m-00001-of-00002.gguf", "m.gguf.bak", "m.gguf.gz", "party.gguf", "m.safetensors", "part",
          "", "m.gguf.old", "depart.bin", "partition", "m.gguf.zip", "m.gguf."}) {
        INFO(name);
        CHECK(describe_name(name).empty());
    }
}

TEST_CASE("the error of a damaged file says what its name says") {
    const TemporaryFolder folder;
    test::GgufWriter writer;
    writer.add("general.architecture", "minimax-m2");
    writer.add_f32("some.weight", {64}, std::vector<float>(64));
    writer.write(folder / "m.gguf");
    const std::string text = test::text_of(folder / "m.gguf");
    Logger log;
    const auto message = [&](const std::string& name, const std::string& content) {
        test::write_text(folder / name, content);
        const auto error = error_of([&] { Checkpoint::open(folder / name, log); });
        return error ? std::string(error->what()) : std::string();
    };
    CHECK(message("m.gguf.1", text).empty());  // a whole file of that name opens
    CHECK(message("M.GGUF", text).empty());
    CHECK(message("m.gguf.part1of2", text.substr(0, 200)).find("join all parts") != std::string::npos);
    CHECK(message("m.gguf.part2of2", text.substr(200)).find("join all parts") != std::string::npos);
    CHECK(message("m.gguf.crdownload", text.substr(0, 30)).find("has not finished") != std::string::npos);
    CHECK(message("cut.gguf", text.substr(0, 200)).find("its name") == std::string::npos);
    CHECK(message("n.gguf", std::string(300, '\0')).find("begins with zeros alone") != std::string::npos);
}

}  // namespace
}  // namespace minim::checkpoint::testing
