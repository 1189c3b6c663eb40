// SPDX-License-Identifier: Apache-2.0
#include "convert/convert.h"

#include <sys/stat.h>

#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/half.h"
#include "base/hash.h"
#include "checkpoint/gguf_parts.h"
#include "model/bind.h"
#include "model/headers.h"
#include "support/catch.h"
#include "support/gguf_writer.h"
#include "unit/convert/support.h"

namespace minim::convert {
namespace {

using namespace testing;
using checkpoint::Checkpoint;
using test::expect_error;

std::string part(const std::string& folder, const char* prefix, int number, int count) {
    return folder + "/" +
           checkpoint::part_file_name({prefix, static_cast<uint64_t>(number), static_cast<uint64_t>(count)});
}

std::vector<float> weights_of(const std::string& path, const std::string& name) {
    const Source source = open_source(path, Logger());
    const auto found = std::ranges::find(source.tensors, name, &SourceTensor::name);
    REQUIRE(found != source.tensors.end());
    const weights::Reader reader(source.checkpoint);
    std::vector<float> all;
    for (const weights::WeightSpec& spec : found->matrices) {
        std::vector<std::byte> rows(spec.bytes());
        reader.read(spec, 0, rows);
        std::vector<float> values(spec.rows * spec.cols);
        decode_rows(spec.format, rows.data(), spec.rows, spec.row_bytes, spec.cols, values.data());
        for (const float value : values) all.push_back(value * reader.factor(spec));
    }
    return all;
}

double relative_error(const std::vector<float>& a, const std::vector<float>& b) {
    REQUIRE(a.size() == b.size());
    double error = 0;
    double square = 0;
    for (size_t i = 0; i < a.size(); ++i) {
        error += std::pow(static_cast<double>(a[i]) - static_cast<double>(b[i]), 2);
        square += std::pow(static_cast<double>(a[i]), 2);
    }
    return std::sqrt(error / square);
}

size_t n_entries(const std::string& folder) {
    return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder), {}));
}

// Opens a file as a model does.
void check_binds(const std::string& path) {
    const Checkpoint checkpoint = Checkpoint::open(path, Logger());
    model::Config config = model::read_config(checkpoint, Logger());
    CHECK(model::bind_weights(checkpoint, config, Logger()).size() > 30);
}

}  // namespace

TEST_CASE("a copy has the bytes of the file, with any memory and threads") {
    const TemporaryFolder folder;
    for (const std::string& source : {k_q8_0, k_mix}) {
        for (const uint64_t memory : {uint64_t{16} << 20, uint64_t{2} << 30}) {
            Options options = options_of(source, folder / "x.gguf");
            options.memory_bytes = memory;
            options.overwrites = true;
            run(options);
            CHECK(text_of(folder / "x.gguf") == text_of(source));
            CHECK(n_entries(folder.path()) == 1);
        }
    }
}

TEST_CASE("parts that are merged are the file again") {
    const TemporaryFolder folder;
    Options split = options_of(k_q8_0, folder / "p.gguf");
    split.limits.tensors = 20;
    const json report = run(split);
    REQUIRE(report["files"].size() == 3);
    CHECK(report["files"][0]["name"] == "p-00001-of-00003.gguf");
    for (int i = 1; i <= 3; ++i)
        CHECK(report["files"][i - 1]["bytes"] == std::filesystem::file_size(part(folder.path(), "p", i, 3)));
    run(options_of(part(folder.path(), "p", 2, 3), folder / "whole.gguf"));
    CHECK(text_of(folder / "whole.gguf") == text_of(k_q8_0));
    Options kept = options_of(part(folder.path(), "p", 1, 3), folder / "q.gguf");
    kept.keeps_split = true;
    run(kept);
    for (int i = 1; i <= 3; ++i)
        CHECK(text_of(part(folder.path(), "p", i, 3)) == text_of(part(folder.path(), "q", i, 3)));
}

TEST_CASE("the first part may have the metadata alone") {
    const TemporaryFolder folder;
    Options options = options_of(k_q8_0, folder / "p.gguf");
    options.limits = {.bytes = 4'000'000, .first_without_tensors = true};
    const json report = run(options);
    CHECK(report["files"][0]["tensors"] == 0);
    check_binds(part(folder.path(), "p", 1, static_cast<int>(report["files"].size())));
}

TEST_CASE("the plan has the sizes that the files then have") {
    const TemporaryFolder folder;
    Options options = quantize_options(k_folder, folder / "x.gguf", "Q8_0");
    options.limits.bytes = 3'000'000;
    const json planned = plan(options);
    CHECK(n_entries(folder.path()) == 0);
    const json report = run(options);
    CHECK(planned["files"] == report["files"]);
    CHECK(planned["bytes"] == report["bytes"]);
    for (const json& file : planned["files"])
        CHECK(file["bytes"] == std::filesystem::file_size(folder / file["name"].get<std::string>()));
    CHECK(planned["tensors"].size() == report["tensors"].size());
    CHECK(planned["tensors"][0]["shape"] == json({2048, 256}));
    CHECK(planned["tensors"][0]["from"] == "BF16");
}

TEST_CASE("a folder becomes a GGUF file of the same numbers, and a copy of that does not change") {
    const TemporaryFolder folder;
    Options options = options_of(k_folder, folder / "a.gguf");
    options.name = "minim-tiny";
    run(options);
    check_binds(folder / "a.gguf");
    const Source source = open_source(k_folder, Logger());
    const Source copy = open_source(folder / "a.gguf", Logger());
    REQUIRE(source.tensors.size() == copy.tensors.size());
    for (size_t i = 0; i < source.tensors.size(); ++i) {
        CHECK(source.tensors[i].name == copy.tensors[i].name);
        CHECK(source.tensors[i].shape == copy.tensors[i].shape);
        if (source.tensors[i].format == copy.tensors[i].format)
            CHECK(weights_of(k_folder, source.tensors[i].name) ==
                  weights_of(folder / "a.gguf", copy.tensors[i].name));
    }
    run(options_of(folder / "a.gguf", folder / "b.gguf"));
    CHECK(text_of(folder / "a.gguf") == text_of(folder / "b.gguf"));
}

TEST_CASE("every quantised layout becomes a GGUF file that opens") {
    const TemporaryFolder folder;
    const auto converted = [&](const char* model) {
        Options options =
            options_of(std::string(MINIM_TEST_MODELS "/") + model, folder / (std::string(model) + ".gguf"));
        run(options);
        check_binds(options.output);
        return options;
    };
    const std::string name = "blk.1.ffn_down_exps.weight";
    {
        // Products of an 8-bit code and a scale do not fit into BF16 exactly.
        const Options options = converted("minim-tiny-fp8");
        const double error =
            relative_error(weights_of(options.source, name), weights_of(options.output, name));
        CHECK(error > 0);
        CHECK(error < 2e-3);
    }
    {
        const Options options = converted("minim-tiny-nvfp4");
        CHECK(weights_of(options.source, name) == weights_of(options.output, name));
        const auto tensors = tensors_of(options.output);
        CHECK(tensors.at("blk.1.ffn_down_exps.scale").size() == 8 * sizeof(float));
    }
    {
        const Options options = converted("minim-tiny-awq");
        const double error =
            relative_error(weights_of(options.source, name), weights_of(options.output, name));
        CHECK(error < 2e-3);
    }
}

TEST_CASE("the report has the errors and hashes of what was written, and so do the metadata") {
    const TemporaryFolder folder;
    Options options = quantize_options(k_folder, folder / "x.gguf", "Q4_0");
    options.effort = EncodeEffort::fast;
    const json report = run(options);
    const auto tensors = tensors_of(folder / "x.gguf");
    const Checkpoint checkpoint = Checkpoint::open(folder / "x.gguf", Logger());
    const checkpoint::MetaValue* hashes = checkpoint.metadata().find("minim.tensor_xxh3");
    const checkpoint::MetaValue* of_source = checkpoint.metadata().find("minim.tensor_source_xxh3");
    REQUIRE(hashes != nullptr);
    REQUIRE(of_source != nullptr);
    CHECK(checkpoint.metadata().unsigned_integer("general.file_type") == 2);
    uint64_t index = 0;
    for (const json& tensor : report["tensors"]) {
        const std::vector<std::byte>& bytes = tensors.at(tensor["name"].get<std::string>());
        const std::string hash = format_text("{:016x}", hash_bytes(bytes));
        CHECK(tensor["xxh3"] == hash);
        CHECK(hashes->unsigned_at(index) == hash_bytes(bytes));
        CHECK(tensor["source_xxh3"] == format_text("{:016x}", of_source->unsigned_at(index)));
        CHECK(tensor["bytes"] == bytes.size());
        ++index;
    }
    const std::string name = "blk.2.attn_output.weight";
    const double error = relative_error(weights_of(k_folder, name), weights_of(folder / "x.gguf", name));
    for (const json& tensor : report["tensors"])
        if (tensor["name"] == name) CHECK(tensor["rmse"].get<double>() == Approx(error).epsilon(1e-6));
    CHECK(error > 0.01);
}

TEST_CASE("a file without hashes stays without") {
    const TemporaryFolder folder;
    Options options = quantize_options(k_folder, folder / "x.gguf", "Q8_0");
    options.writes_hashes = false;
    run(options);
    const Checkpoint checkpoint = Checkpoint::open(folder / "x.gguf", Logger());
    for (const auto& entry : checkpoint.metadata().entries()) CHECK_FALSE(entry.key.starts_with("minim."));
}

TEST_CASE("gate and up of an expert share a factor of NVFP4") {
    const TemporaryFolder folder;
    Options options = options_of(k_folder, folder / "x.gguf");
    options.is_quantize = true;
    options.types.rules = {"ffn_.*_exps=nvfp4"};
    options.effort = EncodeEffort::fast;
    run(options);
    check_binds(folder / "x.gguf");
    const auto tensors = tensors_of(folder / "x.gguf");
    CHECK(tensors.at("blk.0.ffn_gate_exps.scale") == tensors.at("blk.0.ffn_up_exps.scale"));
    const std::string name = "blk.0.ffn_up_exps.weight";
    CHECK(relative_error(weights_of(k_folder, name), weights_of(folder / "x.gguf", name)) < 0.12);
}

TEST_CASE("an existing output, the source and a folder are refused") {
    const TemporaryFolder folder;
    std::filesystem::copy_file(k_q8_0, folder / "a.gguf");
    test::write_text(folder / "x.gguf", "mine");
    expect_error(Status::invalid, "--overwrite",
                 [&] { run(options_of(folder / "a.gguf", folder / "x.gguf")); });
    CHECK(text_of(folder / "x.gguf") == "mine");
    Options options = options_of(folder / "a.gguf", folder / "a.gguf");
    options.overwrites = true;
    expect_error(Status::invalid, "is the source", [&] { run(options); });
    std::filesystem::create_hard_link(folder / "a.gguf", folder / "b.gguf");
    options.output = folder / "b.gguf";
    expect_error(Status::invalid, "is the source", [&] { run(options); });
    CHECK(text_of(folder / "a.gguf") == text_of(k_q8_0));
    expect_error(Status::invalid, "must end in .gguf, or be a folder",
                 [&] { run(options_of(k_q8_0, folder / "x")); });
    expect_error(Status::not_found, "does not exist", [&] { run(options_of(k_q8_0, folder / "no/x.gguf")); });
    options.output = folder / "x.gguf";
    run(options);
    CHECK(text_of(folder / "x.gguf") == text_of(k_q8_0));
    CHECK(n_entries(folder.path()) == 3);
}

TEST_CASE("types that need importance data are refused without, before anything is written") {
    const TemporaryFolder folder;
    const Options options = quantize_options(k_folder, folder / "x.gguf", "IQ2_XS");
    const json planned = plan(options);
    CHECK(planned["needs_importance"].size() > 3);
    const auto error = error_of([&] { run(options); });
    REQUIRE(error);
    CHECK(n_entries(folder.path()) == 0);
}

TEST_CASE("names that are no text are shown with escapes, and written as they are") {
    const TemporaryFolder folder;
    test::GgufWriter writer;
    const std::string name = "a\xFF\n\"weight";
    writer.add_f32(name, {2}, {1, 2});
    writer.write(folder / "a.gguf");
    const json report = run(options_of(folder / "a.gguf", folder / "b.gguf"));
    CHECK(report["tensors"][0]["name"] == "\"a\\xFF\\x0A\\\"weight\"");
    CHECK(text_of(folder / "a.gguf") == text_of(folder / "b.gguf"));
}

TEST_CASE("too little memory is refused") {
    const TemporaryFolder folder;
    Options options = options_of(k_q8_0, folder / "x.gguf");
    options.memory_bytes = 1000;
    expect_error(Status::invalid, "1000 bytes of memory", [&] { run(options); });
}

TEST_CASE("a number that is not finite is refused with its place") {
    const TemporaryFolder folder;
    std::filesystem::create_directory(folder / "m");
    for (const auto& entry : std::filesystem::directory_iterator(k_folder))
        std::filesystem::copy(entry.path(), folder / "m" / entry.path().filename());
    uint64_t at = 0;
    std::string file;
    {
        const Checkpoint checkpoint = Checkpoint::open(folder / "m", Logger());
        const checkpoint::Tensor* tensor =
            checkpoint.find("model.layers.1.block_sparse_moe.experts.5.w2.weight");
        REQUIRE(tensor != nullptr);
        at = tensor->offset + 2 * (3 * 256 + 7);
        file = checkpoint.files()[tensor->part].path();
    }
    std::string bytes = text_of(file);
    bytes[at] = '\xC0';
    bytes[at + 1] = '\x7F';
    test::write_text(file, bytes);
    expect_error(Status::format, "blk.1.ffn_down_exps.weight has NaN in row 3 of expert 5, column 7",
                 [&] { run(quantize_options(folder / "m", folder / "x.gguf", "Q8_0")); });
    CHECK_FALSE(std::filesystem::exists(folder / "x.gguf"));
}

}  // namespace minim::convert
