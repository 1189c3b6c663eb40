// SPDX-License-Identifier: Apache-2.0
#include "convert/experts.h"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "checkpoint/importance_file.h"
#include "model/bind.h"
#include "model/headers.h"
#include "support/catch.h"
#include "unit/convert/support.h"

namespace minim::convert {
namespace {

using namespace testing;
using checkpoint::Checkpoint;
using test::expect_error;

const std::string k_bf16_file = MINIM_TEST_MODELS "/minim-tiny-bf16.gguf";
const std::string k_nvfp4_model = MINIM_TEST_MODELS "/minim-tiny-nvfp4";
constexpr int64_t k_n_expert = 8;

std::string write_list(const TemporaryFolder& folder, const std::string& text) {
    const std::string path = folder / "kept.json";
    std::ofstream(path) << text;
    return path;
}

std::vector<std::byte> part_of(const std::vector<std::byte>& all, const std::vector<int64_t>& ids) {
    std::vector<std::byte> part;
    const auto size = std::ssize(all) / k_n_expert;
    for (const int64_t id : ids)
        part.insert(part.end(), all.begin() + id * size, all.begin() + (id + 1) * size);
    return part;
}

// The experts of layer L of an entry have norms and counts such that those in `best` are the most useful.
void write_norms(const std::string& path, bool with_norms) {
    checkpoint::ImportanceData data;
    data.chunks = 1;
    data.chunk_size = 512;
    for (int layer = 0; layer < 3; ++layer) {
        for (const char* part : {"down", "gate", "up"}) {
            checkpoint::ImportanceEntry entry;
            entry.name = "blk." + std::to_string(layer) + ".ffn_" + part + "_exps.weight";
            entry.columns = 256;
            entry.matrices = k_n_expert;
            for (int e = 0; e < 8; ++e) entry.sums.insert(entry.sums.end(), 256, static_cast<float>(e + 1));
            // Means: 0.5, none, 4, 1, 1, 1, 3, 2; those of layer 2 in reverse.
            entry.counts = {8, 0, 1, 4, 4, 4, 1, 2};
            if (with_norms && std::string_view(part) == "down") entry.out_norm = {4, 0, 4, 4, 4, 4, 3, 4};
            if (layer == 2) {
                std::ranges::reverse(entry.counts);
                std::ranges::reverse(entry.out_norm);
            }
            data.entries.push_back(entry);
        }
    }
    checkpoint::write_importance(path, data, checkpoint::ImportanceForm::gguf);
}

}  // namespace

TEST_CASE("the experts of a list stay, with their rows of the router and their biases") {
    const TemporaryFolder folder;
    const std::vector<std::vector<int64_t>> layers = {{1, 2, 5, 7}, {0, 1, 2, 3}, {4, 5, 6, 7}};
    const std::string list =
        write_list(folder, R"({"layers": [[7, 5, 1, 2], [0, 1, 2, 3], [4, 5, 6, 7]], "note": "x"})");
    const auto whole = tensors_of(k_bf16_file);
    Options options = options_of(k_bf16_file, folder / "x.gguf");
    options.keep_experts = list;
    run(options);
    int n_cut = 0;
    for (const auto& [name, bytes] : tensors_of(folder / "x.gguf")) {
        INFO(name);
        const bool is_cut = name.find("_exps.") != std::string::npos ||
                            name.find("ffn_gate_inp") != std::string::npos ||
                            name.find("exp_probs_b") != std::string::npos;
        n_cut += is_cut ? 1 : 0;
        if (is_cut) {
            CHECK(bytes == part_of(whole.at(name), layers[std::stoul(name.substr(4, 1))]));
        } else {
            CHECK(bytes == whole.at(name));
        }
    }
    CHECK(n_cut == 3 * 5);
    const Checkpoint made = Checkpoint::open(folder / "x.gguf", Logger());
    model::Config config = model::read_config(made, Logger());
    model::bind_weights(made, config, Logger());
    CHECK(config.n_expert == 4);
    CHECK(made.metadata().string("minim.experts_kept") == "4 of 8");
    // From a folder, and to a folder and back, the same.
    options.source = k_folder;
    options.output = folder / "y.gguf";
    run(options);
    CHECK(tensors_of(folder / "y.gguf") == tensors_of(folder / "x.gguf"));
    options.output = folder / "f";
    options.layout = FolderLayout::bf16;
    run(options);
    CHECK(json::parse(text_of(folder / "f/config.json"))["num_local_experts"] == 4);
    run(options_of(folder / "f", folder / "z.gguf"));
    CHECK(tensors_of(folder / "z.gguf") == tensors_of(folder / "x.gguf"));
}

TEST_CASE("the factors of experts are cut with them") {
    const TemporaryFolder folder;
    run(options_of(k_nvfp4_model, folder / "whole.gguf"));
    Options options = options_of(folder / "whole.gguf", folder / "x.gguf");
    options.keep_experts = write_list(folder, R"({"layers": [[0, 7], [1, 2], [3, 4]]})");
    run(options);
    const auto whole = tensors_of(folder / "whole.gguf");
    const auto cut = tensors_of(folder / "x.gguf");
    for (const char* part : {"gate", "up", "down"}) {
        const std::string stem = std::string("blk.0.ffn_") + part + "_exps";
        CHECK(cut.at(stem + ".scale") == part_of(whole.at(stem + ".scale"), {0, 7}));
        CHECK(cut.at(stem + ".weight") == part_of(whole.at(stem + ".weight"), {0, 7}));
    }
}

TEST_CASE("a number keeps the experts of the largest outputs, with their importance") {
    const TemporaryFolder folder;
    write_norms(folder / "i.gguf", true);
    const Source source = open_source(k_folder, Logger());
    const Importance importance(folder / "i.gguf", {}, {});
    CHECK(choose_experts("4", source, &importance).layers ==
          std::vector<std::vector<int64_t>>{{2, 3, 6, 7}, {2, 3, 6, 7}, {0, 1, 2, 5}});
    CHECK(choose_experts("7", source, &importance).layers[0] == std::vector<int64_t>{0, 2, 3, 4, 5, 6, 7});
    CHECK(choose_experts("8", source, &importance).text() == "8 of 8");
    // Encoding after the cut and cutting after encoding are the same.
    Options first = quantize_options(k_folder, folder / "a.gguf", "Q4_0");
    first.imatrix = folder / "i.gguf";
    first.keep_experts = "4";
    run(first);
    Options whole = quantize_options(k_folder, folder / "b.gguf", "Q4_0");
    whole.imatrix = folder / "i.gguf";
    run(whole);
    Options cut = options_of(folder / "b.gguf", folder / "c.gguf");
    cut.imatrix = folder / "i.gguf";
    cut.keep_experts = "4";
    run(cut);
    CHECK(tensors_of(folder / "a.gguf") == tensors_of(folder / "c.gguf"));
}

TEST_CASE("experts that cannot be kept are refused") {
    const TemporaryFolder folder;
    write_norms(folder / "i.gguf", false);
    const auto refused = [&](const std::string& experts, Status status, const char* words,
                             const std::string& imatrix = {}) {
        Options options = options_of(k_folder, folder / "x.gguf");
        options.keep_experts = experts;
        options.imatrix = imatrix;
        expect_error(status, words, [&] { run(options); });
    };
    refused("4", Status::invalid, "importance data");
    refused("4", Status::invalid, "no norms", folder / "i.gguf");
    refused("9", Status::invalid, "the model has 8");
    refused("0", Status::invalid, "0 experts");
    refused(folder / "nowhere", Status::not_found, "nowhere");
    const auto refused_list = [&](const std::string& text, const char* words,
                                  Status status = Status::invalid) {
        refused(write_list(folder, text), status, words);
    };
    refused_list("[]", "'layers'", Status::format);
    refused_list(R"({"layers": [[0, 1], [0, 1]]})", "2 layers");
    refused_list(R"({"layers": [[0, 1], [0, 1], [0, 8]]})", "layer 2 keeps the expert 8");
    refused_list(R"({"layers": [[0, 1], [0, -1], [0, 2]]})", "layer 1 keeps the expert -1");
    refused_list(R"({"layers": [[0, 1], [3, 3], [0, 2]]})", "expert 3 twice");
    refused_list(R"({"layers": [[0, 1], [3], [0, 2]]})", "layer 1 keeps 1 experts");
    refused_list(R"({"layers": [[0], [3], [2]]})", "a token uses 2");
    CHECK_FALSE(std::filesystem::exists(folder / "x.gguf.partial"));
}

}  // namespace minim::convert
