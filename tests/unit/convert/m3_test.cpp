// SPDX-License-Identifier: Apache-2.0
// MiniMax-M3: its folder becomes a GGUF file and comes back, and recipes, layouts and cuts know its tensors.
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/half.h"
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

const std::string k_m3_folder = MINIM_TEST_DATA "/models/minim-tiny-m3";
constexpr int k_m3_layers = 4;
constexpr std::string_view k_m3_prefix = "language_model.";

Options m3_options(std::string source, std::string output, FolderLayout layout) {
    Options options = options_of(std::move(source), std::move(output));
    options.layout = layout;
    return options;
}

// The types of a checkpoint's tensors by name.
std::map<std::string, std::string> stored_types(const std::string& path) {
    const auto checkpoint = Checkpoint::open(path, Logger());
    std::map<std::string, std::string> types;
    for (const checkpoint::Tensor& tensor : checkpoint.tensors())
        types.emplace(tensor.name, tensor.type_name);
    return types;
}

std::map<std::string, std::string> planned_m3_types(const json& plan) {
    std::map<std::string, std::string> types;
    for (const json& tensor : plan["tensors"]) types[tensor["name"]] = tensor["to"];
    return types;
}

// The tensors of the stored folder's language model, without its prefix.
std::map<std::string, std::vector<std::byte>> language_model() {
    std::map<std::string, std::vector<std::byte>> own;
    for (auto& [name, bytes] : tensors_of(k_m3_folder))
        if (name.starts_with(k_m3_prefix)) own.emplace(name.substr(k_m3_prefix.size()), bytes);
    return own;
}

// A copy of the folder with another config.json.
void m3_with_config(const std::string& to, const json& config) {
    std::filesystem::create_directory(to);
    for (const auto& file : std::filesystem::directory_iterator(k_m3_folder))
        if (!file.path().filename().string().starts_with("config"))
            std::filesystem::create_symlink(file.path(), to + "/" + file.path().filename().string());
    std::ofstream(to + "/config.json") << config.dump();
}

json m3_config_of(const char* file) {
    return json::parse(text_of(k_m3_folder + "/" + file));
}

}  // namespace

TEST_CASE("a folder of M3 becomes a GGUF file with the keys and names that llama.cpp gives it") {
    const TemporaryFolder folder;
    const std::string file = folder / "m3.gguf";
    run(options_of(k_m3_folder, file));
    const auto checkpoint = Checkpoint::open(file, Logger());
    const checkpoint::Metadata& metadata = checkpoint.metadata();
    CHECK(metadata.string("general.architecture") == "minimax-m3");
    const std::pair<const char*, uint64_t> counts[] = {{"block_count", 4},
                                                       {"embedding_length", 128},
                                                       {"feed_forward_length", 256},
                                                       {"attention.head_count", 4},
                                                       {"attention.head_count_kv", 2},
                                                       {"attention.key_length", 128},
                                                       {"attention.value_length", 128},
                                                       {"rope.dimension_count", 64},
                                                       {"expert_count", 8},
                                                       {"expert_used_count", 2},
                                                       {"expert_feed_forward_length", 64},
                                                       {"expert_shared_count", 1},
                                                       {"expert_gating_func", 2},
                                                       {"leading_dense_block_count", 1},
                                                       {"attention.indexer.head_count", 2},
                                                       {"attention.indexer.key_length", 128},
                                                       {"attention.indexer.top_k", 2},
                                                       {"attention.indexer.block_size", 128},
                                                       {"attention.indexer.local_blocks", 1}};
    for (const auto& [key, value] : counts) {
        INFO(key);
        const checkpoint::MetaValue* own = metadata.find(std::string("minimax-m3.") + key);
        REQUIRE(own != nullptr);
        CHECK(own->type == checkpoint::MetaType::u32);
        CHECK(own->unsigned_at(0) == value);
    }
    CHECK(metadata.find("minimax-m3.expert_weights_scale")->number_at(0) == 2.0);
    CHECK(metadata.find("minimax-m3.expert_weights_norm")->unsigned_at(0) == 1);
    CHECK(metadata.string("tokenizer.ggml.pre") == "minimax-m2");
    for (const auto& entry : metadata.entries()) CHECK_FALSE(entry.key.starts_with("minimax-m2."));

    std::set<std::string> names = {"token_embd.weight", "output_norm.weight", "output.weight"};
    for (int layer = 0; layer < k_m3_layers; ++layer) {
        const std::string blk = "blk." + std::to_string(layer) + ".";
        for (const char* name :
             {"attn_norm.weight", "attn_q.weight", "attn_k.weight", "attn_v.weight", "attn_output.weight",
              "attn_q_norm.weight", "attn_k_norm.weight", "ffn_norm.weight"})
            names.insert(blk + name);
        for (const char* part : {"gate", "up", "down"}) {
            const std::string stem = blk + "ffn_" + part;
            if (layer == 0) names.insert(stem + ".weight");
            if (layer > 0) names.insert({stem + "_exps.weight", stem + "_shexp.weight"});
        }
        if (layer > 0)
            for (const char* name :
                 {"ffn_gate_inp.weight", "exp_probs_b.bias", "indexer.q_proj.weight", "indexer.k_proj.weight",
                  "indexer.q_norm.weight", "indexer.k_norm.weight"})
                names.insert(blk + name);
    }
    const auto types = stored_types(file);
    CHECK(types.size() == names.size());
    for (const std::string& name : names) {
        INFO(name);
        REQUIRE(types.contains(name));
        const bool is_float = name.find("norm") != std::string::npos || name.ends_with(".bias") ||
                              name.find("gate_inp") != std::string::npos ||
                              name.find("indexer") != std::string::npos;
        CHECK(types.at(name) == (is_float ? "F32" : "BF16"));
    }
    // Norms are 1 + w in GGUF.
    const auto stored = language_model();
    const auto made = tensors_of(file);
    const auto& norm = made.at("blk.2.indexer.k_norm.weight");
    const auto& weights = stored.at("model.layers.2.self_attn.index_k_norm.weight");
    for (size_t i = 0; i < 128; ++i) {
        float own;
        uint16_t bits;
        std::memcpy(&own, norm.data() + 4 * i, sizeof(own));
        std::memcpy(&bits, weights.data() + 2 * i, sizeof(bits));
        CHECK(own == 1.0F + bf16_to_float(bits));
    }
}

TEST_CASE("a GGUF file of M3 becomes the tensors of the folder again") {
    const TemporaryFolder folder;
    run(options_of(k_m3_folder, folder / "m3.gguf"));
    for (const std::string& source : {folder / "m3.gguf", k_m3_folder}) {
        INFO(source);
        Options options = m3_options(source, folder / "f", FolderLayout::bf16);
        options.overwrites = true;
        run(options);
        // A text model: no vision tower, and keys at the top.
        CHECK(tensors_of(folder / "f") == language_model());
        const json config = m3_config_of("config.json")["text_config"];
        const json made = json::parse(text_of(folder / "f/config.json"));
        CHECK(made["architectures"] == json({"MiniMaxM3SparseForCausalLM"}));
        CHECK_FALSE(made.contains("vision_config"));
        for (const auto& [key, value] : made.items()) {
            if (!config.contains(key) || key == "architectures" || key == "model_type" || value.is_object())
                continue;
            INFO(key);
            CHECK(value == config.at(key));
        }
        for (const auto& [key, value] : made["sparse_attention_config"].items()) {
            INFO(key);
            CHECK(value == config["sparse_attention_config"].at(key));
        }
        CHECK(text_of(folder / "f/chat_template.jinja") == text_of(k_m3_folder + "/chat_template.jinja"));
    }
    run(options_of(folder / "f", folder / "again.gguf"));
    CHECK(tensors_of(folder / "again.gguf") == tensors_of(folder / "m3.gguf"));
}

TEST_CASE("the spelling of transformers becomes the same file") {
    const TemporaryFolder folder;
    m3_with_config(folder / "flat", m3_config_of("config.flat.json"));
    run(options_of(folder / "flat", folder / "a.gguf"));
    run(options_of(k_m3_folder, folder / "b.gguf"));
    CHECK(tensors_of(folder / "a.gguf") == tensors_of(folder / "b.gguf"));
}

TEST_CASE("recipes treat dense layers and shared experts of M3 as experts, and leave router and index out") {
    const TemporaryFolder folder;
    run(options_of(k_m3_folder, folder / "m3.gguf"));
    for (const std::string& source : {k_m3_folder, folder / "m3.gguf"}) {
        INFO(source);
        Options options = quantize_options(source, folder / "q.gguf", "Q4_0");
        options.types.is_pure = false;
        auto types = planned_m3_types(plan(options));
        for (const char* name :
             {"blk.0.ffn_gate.weight", "blk.0.ffn_down.weight", "blk.1.ffn_up_shexp.weight",
              "blk.3.ffn_down_shexp.weight", "blk.3.ffn_down_exps.weight", "blk.2.attn_q.weight"})
            CHECK(types.at(name) == "Q4_0");
        for (const char* name : {"blk.1.indexer.q_proj.weight", "blk.1.indexer.k_proj.weight",
                                 "blk.1.ffn_gate_inp.weight", "blk.1.exp_probs_b.bias"})
            CHECK(types.at(name) == "F32");
        CHECK(types.at("output.weight") == "Q8_0");  // 128 columns are no block of Q6_K
        // Chosen experts alone become MXFP4.
        options.types.recipe = find_recipe("MXFP4_MOE");
        types = planned_m3_types(plan(options));
        CHECK(types.at("blk.1.ffn_up_exps.weight") == "MXFP4");
        CHECK(types.at("blk.1.ffn_up_shexp.weight") == "Q8_0");
        CHECK(types.at("blk.0.ffn_up.weight") == "Q8_0");
        // Rules reach the index if they keep it in floats.
        options.types.rules = {"indexer=f16", "shexp=Q5_0"};
        types = planned_m3_types(plan(options));
        CHECK(types.at("blk.1.indexer.q_proj.weight") == "F16");
        CHECK(types.at("blk.1.ffn_up_shexp.weight") == "Q5_0");
        options.types.rules = {"indexer=Q8_0"};
        expect_error(Status::invalid, "matches no matrix", [&] { plan(options); });
    }
    run(quantize_options(k_m3_folder, folder / "q.gguf", "Q4_0"));
    CHECK(stored_types(folder / "q.gguf").at("blk.2.ffn_down_shexp.weight") == "Q4_0");
    const auto opened = Checkpoint::open(folder / "q.gguf", Logger());
    model::Config config = model::read_config(opened, Logger());
    CHECK(model::bind_weights(opened, config, Logger()).size() == 3 + (8 + 3) + 3 * (8 + 4 + 3 + 3 + 3 * 8));
}

TEST_CASE("roles of M3's matrices have the types of experts in every recipe") {
    for (const char* name : {"Q2_K", "Q3_K_M", "Q4_K_M", "Q4_K_S", "IQ2_M", "IQ3_XS", "IQ4_XS", "IQ2_KT"}) {
        const auto recipe = find_recipe(name);
        REQUIRE(recipe);
        for (int64_t layer = 0; layer < 60; ++layer) {
            INFO(name << " " << layer);
            CHECK(type_of(*recipe, MatrixRole::dense_down, layer, 60, false) ==
                  type_of(*recipe, MatrixRole::ffn_down, layer, 60, false));
            CHECK(type_of(*recipe, MatrixRole::dense_gate_up, layer, 60, false) ==
                  type_of(*recipe, MatrixRole::ffn_gate_up, layer, 60, false));
        }
    }
    CHECK(role_of("blk.0.ffn_down.weight") == MatrixRole::dense_down);
    CHECK(role_of("blk.5.ffn_gate_shexp.weight") == MatrixRole::dense_gate_up);
    CHECK(role_of("blk.5.indexer.q_proj.weight") == MatrixRole::other);
}

TEST_CASE("layouts of folders hold M3, within the errors of their encoders") {
    const TemporaryFolder folder;
    struct Case {
        FolderLayout layout;
        const char* quantised;  // a module that is, and one that is not
        const char* plain;
        double most;
    };
    const Case cases[] = {
        {FolderLayout::mxfp8, "model.layers.1.self_attn.index_k_proj", "model.layers.1.block_sparse_moe.gate",
         0.03},
        {FolderLayout::nvfp4, "model.layers.1.block_sparse_moe.experts.7.w2",
         "model.layers.1.block_sparse_moe.shared_experts.up_proj", 0.1},
        {FolderLayout::mxfp4_ct, "model.layers.3.block_sparse_moe.experts.0.w1",
         "model.layers.0.mlp.gate_proj", 0.13},
    };
    for (const Case& one : cases) {
        const std::string name(name_of(one.layout));
        INFO(name);
        const json report = run(m3_options(k_m3_folder, folder / name, one.layout));
        const auto types = stored_types(folder / name);
        CHECK_FALSE(types.contains(one.plain + std::string(".weight_scale")));
        CHECK_FALSE(types.contains(one.plain + std::string(".weight_scale_inv")));
        CHECK((types.contains(one.quantised + std::string(".weight_scale")) ||
               types.contains(one.quantised + std::string(".weight_scale_inv"))));
        double largest = 0;
        for (const json& tensor : report["tensors"]) largest = std::max(largest, tensor.value("rmse", 0.0));
        CHECK(largest < one.most);
        CHECK(largest > one.most / 4);
        // What was written opens, and stays what it is on its way through itself.
        run(m3_options(folder / name, folder / name + "-again", one.layout));
        auto again = tensors_of(folder / name + "-again");
        CHECK(again == tensors_of(folder / name));
    }
    // Dense feed-forwards stay in BF16 beside attention unless a rule says otherwise.
    Options options = m3_options(k_m3_folder, folder / "rules", FolderLayout::nvfp4);
    options.types.rules = {"shexp|ffn_(gate|up|down)\\.=nvfp4"};
    run(options);
    const auto tensors = tensors_of(folder / "rules");
    const std::string shared = "model.layers.1.block_sparse_moe.shared_experts.";
    CHECK(tensors.at(shared + "gate_proj.weight_scale_2") == tensors.at(shared + "up_proj.weight_scale_2"));
    const json excluded = json::parse(text_of(folder / "rules/config.json"))["quantization_config"]["ignore"];
    const auto excludes = [&](const std::string& name) {
        return std::ranges::any_of(excluded, [&](const json& each) { return each == name; });
    };
    CHECK(excludes("model.layers.1.block_sparse_moe.gate"));
    CHECK_FALSE(excludes("model.layers.0.block_sparse_moe.gate"));
    CHECK_FALSE(excludes("model.layers.0.mlp.gate_proj"));
    CHECK(json::parse(text_of(folder / "nvfp4/config.json"))["quantization_config"]["ignore"].dump().find(
              "model.layers.0.mlp.gate_proj") != std::string::npos);
}

TEST_CASE("experts of M3 are cut in the layers that have some") {
    const TemporaryFolder folder;
    std::ofstream(folder / "kept.json") << R"({"layers": [[], [0, 3], [1, 2], [6, 7]]})";
    run(options_of(k_m3_folder, folder / "m3.gguf"));
    for (const std::string& source : {k_m3_folder, folder / "m3.gguf"}) {
        INFO(source);
        Options options = options_of(source, folder / "cut.gguf");
        options.keep_experts = folder / "kept.json";
        options.overwrites = true;
        run(options);
        const auto opened = Checkpoint::open(folder / "cut.gguf", Logger());
        CHECK(opened.metadata().find("minimax-m3.expert_count")->unsigned_at(0) == 2);
        CHECK(opened.metadata().string("minim.experts_kept") == "2 of 8");
        model::Config config = model::read_config(opened, Logger());
        model::bind_weights(opened, config, Logger());
        CHECK(config.n_expert == 2);
        const auto whole = tensors_of(folder / "m3.gguf").at("blk.3.ffn_up_exps.weight");
        const auto cut = tensors_of(folder / "cut.gguf").at("blk.3.ffn_up_exps.weight");
        CHECK(std::equal(cut.begin(), cut.end(), whole.begin() + std::ssize(whole) / 8 * 6));
    }
    Options options = options_of(k_m3_folder, folder / "x.gguf");
    options.keep_experts = folder / "kept.json";
    std::ofstream(folder / "kept.json") << R"({"layers": [[0, 1], [0, 3], [1, 2], [6, 7]]})";
    expect_error(Status::invalid, "layer 0 keeps 2 experts; it has none", [&] { plan(options); });
    std::ofstream(folder / "kept.json") << R"({"layers": [[], [0, 3], [1], [6, 7]]})";
    expect_error(Status::invalid, "layer 2 keeps 1 experts, layer 1 2", [&] { plan(options); });
}

TEST_CASE("the most useful experts of M3 are those of its importance data") {
    const TemporaryFolder folder;
    checkpoint::ImportanceData data;
    data.chunks = 1;
    data.chunk_size = 512;
    for (int layer = 1; layer < k_m3_layers; ++layer) {
        checkpoint::ImportanceEntry entry;
        entry.name = "blk." + std::to_string(layer) + ".ffn_down_exps.weight";
        entry.columns = 64;
        entry.matrices = 8;
        entry.sums.assign(8 * 64, 1.0F);
        entry.counts.assign(8, 4.0F);
        entry.out_norm = {1, 2, 3, 9, 5, 6, 8, 1};
        data.entries.push_back(entry);
    }
    checkpoint::write_importance(folder / "i.gguf", data, checkpoint::ImportanceForm::gguf);
    Options options = options_of(k_m3_folder, folder / "cut.gguf");
    options.imatrix = folder / "i.gguf";
    options.keep_experts = "2";
    run(options);
    const auto whole = tensors_of(k_m3_folder);
    const auto cut = tensors_of(folder / "cut.gguf").at("blk.1.ffn_up_exps.weight");
    const auto& third = whole.at("language_model.model.layers.1.block_sparse_moe.experts.3.w3.weight");
    CHECK(std::equal(third.begin(), third.end(), cut.begin()));
}

TEST_CASE("what GGUF has no key for is refused by name") {
    const TemporaryFolder folder;
    const std::pair<const char*, json> changes[] = {{"swiglu_limit", 5.0}, {"swiglu_alpha", 1.5}};
    for (const auto& [key, value] : changes) {
        json config = m3_config_of("config.json");
        config["text_config"][key] = value;
        const std::string odd = folder / key;
        m3_with_config(odd, config);
        expect_error(Status::unsupported, std::string(key) + " is ",
                     [&] { plan(options_of(odd, folder / "x.gguf")); });
        run(m3_options(odd, odd + "-folder", FolderLayout::bf16));
        CHECK(json::parse(text_of(odd + "-folder/config.json"))[key] == value);
    }
    json config = m3_config_of("config.json");
    config["text_config"]["sparse_attention_config"]["sparse_init_block"] = 1;
    m3_with_config(folder / "init", config);
    expect_error(Status::unsupported, "sparse_init_block is 1",
                 [&] { plan(options_of(folder / "init", folder / "x.gguf")); });
}

TEST_CASE("shapes of M3 are no metadata to change") {
    const TemporaryFolder folder;
    run(options_of(k_m3_folder, folder / "m3.gguf"));
    Options options = options_of(folder / "m3.gguf", folder / "x.gguf");
    for (const char* key : {"minimax-m3.block_count", "minimax-m3.leading_dense_block_count",
                            "minimax-m3.attention.indexer.key_length"}) {
        options.edits = {{.key = key, .text = "5"}};
        expect_error(Status::invalid, key, [&] { plan(options); });
    }
}

}  // namespace minim::convert
