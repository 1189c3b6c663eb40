// SPDX-License-Identifier: Apache-2.0
// Safetensors folders that are written.
#include <cmath>
#include <filesystem>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "checkpoint/importance_file.h"
#include "model/bind.h"
#include "model/headers.h"
#include "model/vocabulary.h"
#include "support/catch.h"
#include "unit/convert/support.h"

namespace minim::convert {
namespace {

using namespace testing;
using checkpoint::Checkpoint;
using test::expect_error;

const std::string k_bf16 = MINIM_TEST_MODELS "/minim-tiny-bf16.gguf";
const std::string k_fp8_folder = MINIM_TEST_MODELS "/minim-tiny-fp8";
const std::string k_nvfp4_folder = MINIM_TEST_MODELS "/minim-tiny-nvfp4";

Options folder_options(std::string source, std::string output, FolderLayout layout) {
    Options options = options_of(std::move(source), std::move(output));
    options.layout = layout;
    return options;
}

// The numbers of all matrices and vectors of a model, by role, layer and expert.
std::map<std::vector<int32_t>, std::vector<float>> numbers_of(const std::string& path) {
    const Checkpoint checkpoint = Checkpoint::open(path, Logger());
    model::Config config = model::read_config(checkpoint, Logger());
    const weights::Reader reader(checkpoint);
    std::map<std::vector<int32_t>, std::vector<float>> all;
    for (const weights::WeightSpec& spec : model::bind_weights(checkpoint, config, Logger())) {
        std::vector<std::byte> rows(spec.bytes());
        reader.read(spec, 0, rows);
        std::vector<float> values(spec.rows * spec.cols);
        decode_rows(spec.format, rows.data(), spec.rows, spec.row_bytes, spec.cols, values.data());
        const float factor = reader.factor(spec);
        for (float& value : values) value *= factor;
        all.emplace(std::vector<int32_t>{spec.role, spec.layer, spec.expert}, std::move(values));
    }
    return all;
}

// The largest relative error of a matrix, and how many matrices have any.
std::pair<double, int> errors_between(const std::string& path, const std::string& wanted) {
    const auto got = numbers_of(path);
    const auto want = numbers_of(wanted);
    REQUIRE(got.size() == want.size());
    double largest = 0;
    int n_changed = 0;
    for (const auto& [key, values] : want) {
        const std::vector<float>& other = got.at(key);
        REQUIRE(other.size() == values.size());
        double error = 0;
        double square = 0;
        for (size_t i = 0; i < values.size(); ++i) {
            error += std::pow(static_cast<double>(other[i]) - static_cast<double>(values[i]), 2);
            square += std::pow(static_cast<double>(values[i]), 2);
        }
        largest = std::max(largest, std::sqrt(error / square));
        n_changed += error > 0 ? 1 : 0;
    }
    return {largest, n_changed};
}

std::map<std::string, std::string> texts_in(const std::string& folder) {
    std::map<std::string, std::string> texts;
    for (const auto& entry : std::filesystem::directory_iterator(folder))
        texts[entry.path().filename()] = entry.is_directory() ? "folder" : text_of(entry.path());
    return texts;
}

json json_in(const std::string& path) {
    return json::parse(text_of(path));
}

constexpr int k_n_expert_matrices = 3 * 8 * 3;
constexpr int k_n_attention_matrices = 3 * 4;

}  // namespace

TEST_CASE("a folder of a BF16 file becomes the same tensors in GGUF again") {
    const TemporaryFolder folder;
    run(folder_options(k_bf16, folder / "f", FolderLayout::bf16));
    run(options_of(folder / "f", folder / "back.gguf"));
    CHECK(tensors_of(folder / "back.gguf") == tensors_of(k_bf16));
    // The tokenizer that was made is the file's.
    const Checkpoint made = Checkpoint::open(folder / "f", Logger());
    const Checkpoint stored = Checkpoint::open(k_bf16, Logger());
    const tokenizer::Vocabulary a = model::read_vocabulary(made, Logger());
    const tokenizer::Vocabulary b = model::read_vocabulary(stored, Logger());
    const size_t n_tokens = a.tokens.size();  // rows without text behind the last one are left out
    CHECK(std::equal(a.tokens.begin(), a.tokens.end(), b.tokens.begin()));
    CHECK(std::equal(a.types.begin(), a.types.end(), b.types.begin()));
    for (size_t id = n_tokens; id < b.tokens.size(); ++id) CHECK(b.types[id] == tokenizer::TokenType::unused);
    CHECK(a.merges == b.merges);
    CHECK(std::pair(a.bos, a.eos) == std::pair(b.bos, b.eos));
    CHECK(text_of(folder / "f/chat_template.jinja") == text_of(k_folder + "/chat_template.jinja"));
    const json config = json_in(folder / "f/config.json");
    const json wanted = json_in(k_folder + "/config.json");
    for (const auto& [key, value] : config.items()) {
        INFO(key);
        CHECK(value == wanted.at(key));
    }
    const json generation = json_in(folder / "f/generation_config.json");
    CHECK(generation == json_in(k_folder + "/generation_config.json"));
}

TEST_CASE("a BF16 folder becomes the same tensors under the same names") {
    const TemporaryFolder folder;
    Options options = folder_options(k_folder, folder / "f", FolderLayout::bf16);
    options.limits.bytes = 4'000'000;
    const json planned = plan(options);
    CHECK(texts_in(folder.path()).empty());
    const json report = run(options);
    CHECK(tensors_of(folder / "f") == tensors_of(k_folder));
    for (const char* name :
         {"generation_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"})
        CHECK(text_of(folder / "f" + "/" + name) == text_of(k_folder + "/" + name));
    CHECK(json_in(folder / "f/config.json") == json_in(k_folder + "/config.json"));
    CHECK(texts_in(folder.path()).size() == 1);
    // The plan has the sizes of all files.
    CHECK(planned["files"] == report["files"]);
    const auto texts = texts_in(folder / "f");
    CHECK(report["files"].size() == texts.size());
    uint64_t bytes = 0;
    for (const json& file : report["files"]) {
        CHECK(texts.at(file["name"]).size() == file["bytes"]);
        bytes += file["bytes"].get<uint64_t>();
    }
    CHECK(bytes == report["bytes"]);
    CHECK(texts.contains("model-00004-of-00004.safetensors"));
    const json index = json_in(folder / "f/model.safetensors.index.json");
    CHECK(index["metadata"]["total_size"] == report["tensor_bytes"]);
    CHECK(index["weight_map"].size() == tensors_of(k_folder).size());
}

TEST_CASE("layouts store experts, and fp8 attention too, within the errors of their encoders") {
    const TemporaryFolder folder;
    struct Case {
        FolderLayout layout;
        double most;
        int n_changed;
    };
    // quality.json has for Gaussian matrices: FP8 0.026, NVFP4 0.085, MXFP4 0.11, INT4 0.09 to 0.11, INT8 0.007.
    const Case cases[] = {
        {FolderLayout::fp8, 0.03, k_n_expert_matrices + k_n_attention_matrices},
        {FolderLayout::mxfp8, 0.03, k_n_expert_matrices + k_n_attention_matrices},
        {FolderLayout::nvfp4, 0.1, k_n_expert_matrices},
        {FolderLayout::nvfp4_ct, 0.1, k_n_expert_matrices},
        {FolderLayout::mxfp4_ct, 0.13, k_n_expert_matrices},
        {FolderLayout::int4_g32, 0.12, k_n_expert_matrices},
        {FolderLayout::int4_g128, 0.15, k_n_expert_matrices},
        {FolderLayout::int8, 0.012, k_n_expert_matrices},
    };
    for (const Case& one : cases) {
        INFO(name_of(one.layout));
        const std::string path = folder / std::string(name_of(one.layout));
        const json report = run(folder_options(k_folder, path, one.layout));
        const auto [largest, n_changed] = errors_between(path, k_folder);
        CHECK(largest < one.most);
        CHECK(largest > one.most / 4);
        CHECK(n_changed == one.n_changed);
        // The report has the errors of what opens.
        double reported = 0;
        for (const json& tensor : report["tensors"]) reported = std::max(reported, tensor.value("rmse", 0.0));
        CHECK(std::fabs(reported - largest) < 1e-5);
        CHECK(json_in(path + "/config.json").contains("quantization_config"));
        CHECK(std::filesystem::exists(path + "/hf_quant_config.json") == (one.layout == FolderLayout::nvfp4));
    }
}

TEST_CASE("bytes of a folder do not depend on threads and memory") {
    const TemporaryFolder folder;
    for (const FolderLayout layout : {FolderLayout::fp8, FolderLayout::nvfp4}) {
        Options options = folder_options(k_folder, folder / "a", layout);
        options.overwrites = true;
        run(options);
        options.output = folder / "b";
        options.memory_bytes = uint64_t{16} << 20;
        const ThreadPool one_thread(1);
        convert_model(options, one_thread, nullptr, nullptr, Logger());
        CHECK(texts_in(folder / "a") == texts_in(folder / "b"));
    }
}

TEST_CASE("codes and scales stay if the layout has them") {
    const TemporaryFolder folder;
    const auto stored = tensors_of(k_nvfp4_folder);
    run(options_of(k_nvfp4_folder, folder / "x.gguf"));
    for (const std::string& source : {folder / "x.gguf", k_nvfp4_folder}) {
        Options options = folder_options(source, folder / "f", FolderLayout::nvfp4);
        options.overwrites = true;
        run(options);
        int n = 0;
        for (const auto& [name, bytes] : tensors_of(folder / "f")) {
            if (name.find(".experts.") == std::string::npos) continue;
            INFO(name);
            CHECK(bytes == stored.at(name));
            ++n;
        }
        CHECK(n == 3 * k_n_expert_matrices);
    }
    run(folder_options(k_fp8_folder, folder / "g", FolderLayout::fp8));
    CHECK(tensors_of(folder / "g") == tensors_of(k_fp8_folder));
    for (const FolderLayout layout : {FolderLayout::mxfp4_ct, FolderLayout::nvfp4_ct}) {
        const std::string name(name_of(layout));
        run(folder_options(k_folder, folder / name, layout));
        run(options_of(folder / name, folder / name + ".gguf"));
        run(folder_options(folder / name + ".gguf", folder / name + "-again", layout));
        const auto first = tensors_of(folder / name);
        for (const auto& [tensor, bytes] : tensors_of(folder / name + "-again")) {
            INFO(tensor);
            // A factor is divided by twice on its way.
            if (!tensor.ends_with("weight_global_scale")) CHECK(bytes == first.at(tensor));
        }
    }
}

TEST_CASE("gate and up of an expert share the factor of NVFP4") {
    const TemporaryFolder folder;
    run(folder_options(k_folder, folder / "f", FolderLayout::nvfp4));
    const auto tensors = tensors_of(folder / "f");
    std::set<std::vector<std::byte>> factors;
    for (int expert = 0; expert < 8; ++expert) {
        const std::string stem = "model.layers.1.block_sparse_moe.experts." + std::to_string(expert);
        CHECK(tensors.at(stem + ".w1.weight_scale_2") == tensors.at(stem + ".w3.weight_scale_2"));
        factors.insert(tensors.at(stem + ".w1.weight_scale_2"));
        factors.insert(tensors.at(stem + ".w2.weight_scale_2"));
    }
    CHECK(factors.size() > 8);
    CHECK_FALSE(tensors.contains("model.layers.1.block_sparse_moe.experts.0.w1.input_scale"));
    CHECK(json_in(folder / "f/hf_quant_config.json")["quantization"]["quant_algo"] == "W4A16_NVFP4");
}

TEST_CASE("importance data gives the scales of inputs") {
    const TemporaryFolder folder;
    checkpoint::ImportanceData data;
    data.chunks = 1;
    data.chunk_size = 512;
    for (int layer = 0; layer < 3; ++layer) {
        for (const char* part : {"down", "gate", "up"}) {
            checkpoint::ImportanceEntry entry;
            entry.name = "blk." + std::to_string(layer) + ".ffn_" + part + "_exps.weight";
            entry.columns = 256;
            entry.matrices = 8;
            entry.sums.assign(8 * 256, 1.0F);
            entry.counts.assign(8, 4.0F);
            entry.in_max = {8, 1, 2, 3, 4, 5, 6, 0};  // no row reached the last one
            data.entries.push_back(entry);
        }
    }
    checkpoint::write_importance(folder / "i.gguf", data, checkpoint::ImportanceForm::gguf);
    Options options = folder_options(k_folder, folder / "f", FolderLayout::nvfp4);
    options.imatrix = folder / "i.gguf";
    run(options);
    const auto tensors = tensors_of(folder / "f");
    const auto scale_of = [&](int expert) {
        float scale;
        const auto& bytes = tensors.at("model.layers.2.block_sparse_moe.experts." + std::to_string(expert) +
                                       ".w2.input_scale");
        REQUIRE(bytes.size() == sizeof(scale));
        std::memcpy(&scale, bytes.data(), sizeof(scale));
        return scale;
    };
    CHECK(scale_of(1) == 1.0F / 2688.0F);
    CHECK(scale_of(7) == 8.0F / 2688.0F);
    CHECK(json_in(folder / "f/hf_quant_config.json")["quantization"]["quant_algo"] == "NVFP4");
    CHECK(errors_between(folder / "f", k_folder).first < 0.1);
    // Without the largest inputs of one layer there are none at all.
    data.entries.front().in_max.clear();
    checkpoint::write_importance(folder / "i.gguf", data, checkpoint::ImportanceForm::gguf);
    options.output = folder / "g";
    run(options);
    CHECK_FALSE(
        tensors_of(folder / "g").contains("model.layers.2.block_sparse_moe.experts.1.w2.input_scale"));
}

TEST_CASE("rules add attention, and leave experts out") {
    const TemporaryFolder folder;
    Options options = folder_options(k_folder, folder / "f", FolderLayout::int4_g32);
    options.types.rules = {"blk\\.1\\..*down_exps=bf16", "blk\\.0\\.attn_q=INT4-g32"};
    run(options);
    CHECK(errors_between(folder / "f", k_folder).second == k_n_expert_matrices - 8 + 1);
    const json ignored = json_in(folder / "f/config.json")["quantization_config"]["ignore"];
    const auto has = [&](const char* name) { return std::ranges::find(ignored, name) != ignored.end(); };
    CHECK(has("re:model\\.layers\\.1\\.block_sparse_moe\\.experts\\.[0-9]+\\.w2$"));
    CHECK(has("re:model\\.layers\\.0\\.self_attn\\.k_proj$"));
    CHECK_FALSE(has("re:model\\.layers\\.0\\.self_attn\\.q_proj$"));
    options.output = folder / "g";
    options.types.rules = {"nothing=bf16"};
    expect_error(Status::invalid, "nothing=bf16", [&] { run(options); });
    options.types.rules = {"attn=q4_k"};
    expect_error(Status::invalid, "attn=q4_k", [&] { run(options); });
    CHECK(texts_in(folder.path()).size() == 1);
}

TEST_CASE("a folder that was interrupted goes on to the same bytes") {
    const TemporaryFolder folder;
    Options options = folder_options(k_folder, folder / "f", FolderLayout::nvfp4);
    options.limits.bytes = 2'000'000;
    run(options);
    const auto wanted = texts_in(folder / "f");
    options.output = folder / "g";
    for (const int64_t n_before : {1, 20, 80}) {
        const auto stop = [&](const Progress& now) { return now.n_done < n_before; };
        expect_error(Status::cancelled, "g.partial", [&] { run(options, {}, stop); });
        CHECK_FALSE(std::filesystem::exists(folder / "g"));
        expect_error(Status::not_found, "", [&] { Checkpoint::open(folder / "g.partial", Logger()); });
    }
    const json report = run(options);
    CHECK(report["resumed"] >= 1);
    CHECK(texts_in(folder / "g") == wanted);
    CHECK(texts_in(folder.path()).size() == 2);
}

TEST_CASE("a folder is replaced only if it has weights, and is not the source") {
    const TemporaryFolder folder;
    Options options = folder_options(k_bf16, folder / "f", FolderLayout::bf16);
    run(options);
    const auto wanted = texts_in(folder / "f");
    expect_error(Status::invalid, "--overwrite", [&] { run(options); });
    options.overwrites = true;
    std::filesystem::remove(folder / "f/config.json");
    run(options);
    CHECK(texts_in(folder / "f") == wanted);
    options.source = folder / "f";
    expect_error(Status::invalid, "is the source", [&] { run(options); });
    options.source = k_bf16;
    std::filesystem::create_directory(folder / "mine");
    options.output = folder / "mine";
    expect_error(Status::invalid, "not a folder with weights", [&] { run(options); });
    std::filesystem::create_directory(folder / "f/inner");
    options.output = folder / "f";
    expect_error(Status::invalid, "inner", [&] { run(options); });
    CHECK(texts_in(folder.path()).size() == 2);
}

TEST_CASE("a folder refuses what only GGUF files have, and sources below 8 bits") {
    const TemporaryFolder folder;
    const auto refused = [&](const auto& change, const char* words) {
        Options options = folder_options(k_folder, folder / "f", FolderLayout::fp8);
        change(options);
        expect_error(Status::invalid, words, [&] { run(options); });
    };
    refused([](Options& o) { o.types.is_pure = true; }, "exceptions of recipes (--pure");
    refused([](Options& o) { o.types.target = Target::plain; }, "a type of all matrices (--type)");
    refused([](Options& o) { o.name = "x"; }, "changes of metadata");
    refused([](Options& o) { o.limits.tensors = 5; }, "limits of parts");
    refused([](Options& o) { o.output += ".gguf"; }, "has no layout");
    refused([](Options& o) { o.source = k_nvfp4_folder; }, "--allow-requantize");
    CHECK(texts_in(folder.path()).empty());
    Options options = folder_options(k_nvfp4_folder, folder / "f", FolderLayout::int8);
    options.types.allows_requantize = true;
    run(options);
    CHECK(errors_between(folder / "f", k_nvfp4_folder).first < 0.012);
    run(folder_options(k_nvfp4_folder, folder / "g", FolderLayout::bf16));
    CHECK(errors_between(folder / "g", k_nvfp4_folder).first < 0.004);
}

}  // namespace minim::convert
