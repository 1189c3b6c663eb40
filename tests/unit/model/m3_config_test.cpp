// SPDX-License-Identifier: Apache-2.0
#include "model/m3_config.h"

#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "checkpoint/gguf_header.h"
#include "model/config.h"
#include "support.h"

namespace minim::test {
namespace {

using nlohmann::json;

constexpr size_t k_layers = 60;

// Returns a list for all layers: `first` for the leading three, `other` for the rest.
json list_of(const json& first, const json& other) {
    json list = std::vector<json>(k_layers, other);
    for (size_t layer = 0; layer < 3; ++layer) list[layer] = first;
    return list;
}

// Returns text_config of the released model.
json m3_text() {
    return {
        {"num_hidden_layers", k_layers},
        {"hidden_size", 6144},
        {"intermediate_size", 3072},
        {"dense_intermediate_size", 12288},
        {"shared_intermediate_size", 3072},
        {"n_shared_experts", 1},
        {"num_attention_heads", 64},
        {"num_key_value_heads", 4},
        {"head_dim", 128},
        {"vocab_size", 200064},
        {"max_position_embeddings", 1048576},
        {"rms_norm_eps", 1e-6},
        {"use_gemma_norm", true},
        {"attention_output_gate", false},
        {"rope_theta", 5000000},
        {"rotary_dim", 64},
        {"partial_rotary_factor", 0.5},
        {"hidden_act", "swigluoai"},
        {"swiglu_alpha", 1.702},
        {"swiglu_limit", 7.0},
        {"use_qk_norm", true},
        {"qk_norm_type", "per_head"},
        {"tie_word_embeddings", false},
        {"num_local_experts", 128},
        {"num_experts_per_tok", 4},
        {"scoring_func", "sigmoid"},
        {"use_routing_bias", true},
        {"routed_scaling_factor", 2.0},
        {"num_mtp_modules", 7},
        {"moe_layer_freq", list_of(0, 1)},
        {"sparse_attention_config",
         {{"use_sparse_attention", true},
          {"sparse_index_dim", 128},
          {"sparse_num_index_heads", 4},
          {"sparse_topk_blocks", 16},
          {"sparse_block_size", 128},
          {"sparse_disable_index_value", list_of(0, 1)},
          {"sparse_score_type", "max"},
          {"sparse_init_block", 0},
          {"sparse_local_block", 1},
          {"sparse_attention_freq", list_of(0, 1)}}},
    };
}

// Returns the same as transformers 5 writes it.
json m3_text_of_transformers() {
    json text = m3_text();
    for (const char* key :
         {"n_shared_experts", "use_gemma_norm", "attention_output_gate", "rope_theta", "rotary_dim",
          "partial_rotary_factor", "use_qk_norm", "qk_norm_type", "scoring_func", "use_routing_bias",
          "num_mtp_modules", "moe_layer_freq", "sparse_attention_config"})
        text.erase(key);
    text["hidden_act"] = "silu";
    text["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 5e6}, {"partial_rotary_factor", 0.5}};
    text["index_n_heads"] = 4;
    text["index_head_dim"] = 128;
    text["index_block_size"] = 128;
    text["index_topk_blocks"] = 16;
    text["index_local_blocks"] = 1;
    text["layer_types"] = list_of("full_attention", "minimax_m3_sparse");
    text["mlp_layer_types"] = list_of("dense", "sparse");
    return text;
}

json whole_of(const json& text) {
    return {{"architectures", {"MiniMaxM3SparseForConditionalGeneration"}},
            {"model_type", "minimax_m3_vl"},
            {"text_config", text},
            {"vision_config", {{"hidden_size", 1280}, {"num_hidden_layers", 32}}},
            {"image_token_index", 200025},
            {"hidden_size", 1},
            {"torch_dtype", "bfloat16"}};
}

model::Config m3_of(const json& object, const Logger& log = Logger()) {
    return model::config_from_json(object.dump(), log);
}

void check_released(const model::Config& config) {
    CHECK(config.family == model::Family::m3);
    CHECK(config.n_layer == 60);
    CHECK(config.n_dense_layer == 3);
    CHECK(config.hidden == 6144);
    CHECK(config.n_head == 64);
    CHECK(config.n_head_kv == 4);
    CHECK(config.head_dim == 128);
    CHECK(config.rotary_dim == 64);
    CHECK(config.rope_theta == 5e6);
    CHECK(config.n_expert == 128);
    CHECK(config.n_expert_used == 4);
    CHECK(config.expert_ff == 3072);
    CHECK(config.shared_ff == 3072);
    CHECK(config.dense_ff == 12288);
    CHECK(config.expert_weights_scale == 2.0F);
    CHECK(config.needs_router_bias);
    CHECK(config.activation == backend::Activation{.alpha = 1.702F, .limit = 7.0F});
    CHECK(config.first_sparse_layer == 3);
    CHECK(config.sparse_attention ==
          backend::SparseAttention{.n_head = 4, .dim = 128, .block = 128, .top = 16, .local = 1, .init = 0});
    CHECK_FALSE(config.has_experts(2));
    CHECK(config.has_experts(3));
    CHECK_FALSE(config.is_sparse(2));
    CHECK(config.is_sparse(3));
}

void expect_m3_error(Status status, std::string_view part, const json& text) {
    INFO(part);
    expect_error(status, part, [&] { m3_of(whole_of(text)); });
}

}  // namespace

TEST_CASE("config.json of M3 gives its configuration, in both spellings and both together") {
    for (const json& text : {m3_text(), m3_text_of_transformers()}) {
        const model::Config config = m3_of(whole_of(text));
        check_released(config);
        CHECK(config.adds_one_to_norms);
        CHECK(config.n_vocab == 200064);
        CHECK(config.n_context_train == 1048576);
    }
    json both = m3_text();
    both.update(m3_text_of_transformers());
    check_released(m3_of(whole_of(both)));
    json only_first = m3_text();
    only_first.erase("moe_layer_freq");
    only_first["first_k_dense_replace"] = 3;
    check_released(m3_of(whole_of(only_first)));
}

TEST_CASE("a text-only export has the keys of M3 at the top") {
    for (const char* name : {"MiniMaxM3SparseForCausalLM", "MiniMaxM3ForCausalLM"}) {
        json object = m3_text();
        object["architectures"] = {name};
        object["model_type"] = "minimax_m3";
        check_released(m3_of(object));
    }
}

TEST_CASE("the vision tower of M3 is noted, not refused") {
    Lines lines;
    m3_of(whole_of(m3_text()), lines.log);
    CHECK(lines.holding("pictures are not supported: the vision tower is left out") == 1);
    json alone = m3_text();
    alone["architectures"] = {"MiniMaxM3SparseForCausalLM"};
    Lines others;
    m3_of(alone, others.log);
    CHECK(others.holding("pictures") == 0);
}

TEST_CASE("M3 without block-sparse attention attends to all keys") {
    json text = m3_text();
    text["sparse_attention_config"]["use_sparse_attention"] = false;
    CHECK_FALSE(m3_of(whole_of(text)).is_sparse(59));
    text.erase("sparse_attention_config");
    CHECK(m3_of(whole_of(text)).sparse_attention.n_head == 0);
}

TEST_CASE("every layer of M3 may be sparse and have experts") {
    json text = m3_text();
    text["moe_layer_freq"] = std::vector<int>(k_layers, 1);
    json& sparse = text["sparse_attention_config"];
    sparse["sparse_attention_freq"] = std::vector<int>(k_layers, 1);
    sparse["sparse_disable_index_value"] = 1;
    text.erase("dense_intermediate_size");
    const model::Config config = m3_of(whole_of(text));
    CHECK(config.has_experts(0));
    CHECK(config.is_sparse(0));
    CHECK(config.dense_ff == 0);
}

TEST_CASE("what M3 does not compute here is refused by its key") {
    const std::vector<std::tuple<std::string, json, std::string>> refused = {
        {"use_gemma_norm", false, "use_gemma_norm = false"},
        {"qk_norm_type", "per_layer", "qk_norm_type = \"per_layer\""},
        {"use_qk_norm", false, "use_qk_norm = false"},
        {"scoring_func", "softmax", "scoring_func = \"softmax\""},
        {"use_routing_bias", false, "use_routing_bias = false"},
        {"attention_output_gate", true, "attention_output_gate = true"},
        {"tie_word_embeddings", true, "tie_word_embeddings = true"},
        {"hidden_act", "gelu", "hidden_act = \"gelu\""},
        {"swiglu_beta", 2, "swiglu_beta = 2"},
        {"swiglu_limit", 0, "limit 0"},
        {"swiglu_alpha", -1, "alpha -1"},
        {"n_shared_experts", 2, "n_shared_experts = 2"},
        {"sliding_window", 4096, "sliding_window = 4096"},
        {"attention_bias", true, "attention_bias = true"},
        {"rope_scaling", {{"rope_type", "yarn"}, {"factor", 4}}, "rope_scaling"},
        {"sparse_init_tokens", 64, "sparse_init_tokens = 64"},
        {"layer_types", list_of("full_attention", "sliding_attention"), "layer 3 is of type"},
    };
    for (const auto& [key, value, part] : refused) {
        json text = m3_text();
        text[key] = value;
        expect_m3_error(Status::unsupported, part, text);
    }
    json beta = m3_text();
    beta["swiglu_beta"] = 1;
    check_released(m3_of(whole_of(beta)));
}

TEST_CASE("block-sparse attention of another kind is refused by its key") {
    const std::vector<std::tuple<std::string, json, std::string>> refused = {
        {"sparse_score_type", "lse", "sparse_score_type = \"lse\""},
        {"sparse_block_size", 96, "blocks of 96"},
        {"sparse_block_size", 8, "blocks of 8"},
        {"sparse_block_size", 2048, "blocks of 2048"},
        {"sparse_num_index_heads", 8, "8 index heads beside 4 KV heads"},
        {"sparse_disable_index_value", 0, "sparse_disable_index_value = 0"},
        {"sparse_disable_index_value", list_of(1, 0), "0 for layer 3"},
        {"sparse_local_tokens", 128, "sparse_local_tokens = 128"},
        {"sparse_attention_freq", list_of(1, 0), "layer 3 attends to all keys"},
    };
    for (const auto& [key, value, part] : refused) {
        json text = m3_text();
        text["sparse_attention_config"][key] = value;
        expect_m3_error(Status::unsupported, part, text);
    }
    for (const auto& [key, value, part] : {std::tuple("sparse_topk_blocks", 0, "0 chosen blocks"),
                                           {"sparse_local_block", 0, "0 local"},
                                           {"sparse_init_block", 16, "16 initial"},
                                           {"sparse_index_dim", 32, "index dimension 32"}}) {
        json text = m3_text();
        text["sparse_attention_config"][key] = value;
        expect_m3_error(Status::format, part, text);
    }
}

TEST_CASE("both spellings of M3 must agree, and lists must have an entry for each layer") {
    json both = m3_text();
    both.update(m3_text_of_transformers());
    const std::vector<std::tuple<std::string, json, std::string>> odd = {
        {"index_n_heads", 2, "index_n_heads = 2 do not agree"},
        {"index_head_dim", 64, "sparse_index_dim = 128 and index_head_dim = 64"},
        {"index_block_size", 64, "index_block_size = 64"},
        {"index_topk_blocks", 8, "index_topk_blocks = 8"},
        {"index_local_blocks", 2, "index_local_blocks = 2"},
        {"first_k_dense_replace", 2, "first_k_dense_replace = 2"},
        {"mlp_layer_types", std::vector<std::string>(k_layers, "sparse"), "mlp_layer_types"},
        {"layer_types", std::vector<std::string>(k_layers, "full_attention"), "layer_types"},
        {"rope_theta", 10000, "rope_theta is"},
        {"partial_rotary_factor", 1.0, "partial_rotary_factor = 1"},
        {"rotary_dim", 128, "rotary_dim = 128"},
        {"moe_layer_freq", std::vector<int>(59, 1), "moe_layer_freq has not one entry for each of 60 layers"},
        {"mlp_layer_types", std::vector<std::string>(61, "sparse"), "mlp_layer_types has not one entry"},
        {"layer_types", std::vector<std::string>(61, "full_attention"), "layer_types has not one entry"},
        {"moe_layer_freq", list_of(0, 2), "an entry 2"},
    };
    for (const auto& [key, value, part] : odd) {
        json text = both;
        text[key] = value;
        expect_m3_error(Status::format, part, text);
    }
    json text = m3_text();
    text["moe_layer_freq"][10] = 0;
    expect_m3_error(Status::unsupported, "layer 10 has no experts", text);
    text.erase("moe_layer_freq");
    expect_m3_error(Status::format, "mlp_layer_types says which layers have experts", text);
}

TEST_CASE("a missing key of M3 is a format error that names it") {
    for (const char* key :
         {"hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim", "intermediate_size",
          "dense_intermediate_size", "shared_intermediate_size", "rms_norm_eps", "num_local_experts",
          "num_experts_per_tok", "max_position_embeddings", "rope_theta"}) {
        json object = m3_text();
        object["architectures"] = {"MiniMaxM3SparseForCausalLM"};
        REQUIRE(object.erase(key) == 1);
        INFO(key);
        expect_error(Status::format, key, [&] { m3_of(object); });
    }
    for (const char* key : {"sparse_index_dim", "sparse_num_index_heads", "sparse_topk_blocks",
                            "sparse_block_size", "sparse_attention_freq"}) {
        json text = m3_text();
        REQUIRE(text["sparse_attention_config"].erase(key) == 1);
        expect_m3_error(Status::format, key, text);
    }
}

namespace {

struct M3Gguf {
    std::string left_out = {};  // a key, without its prefix
    int32_t first_ff = 3072;    // of the array of expert widths: of the leading layers
    bool has_array = false;     // expert widths as an array
    std::string architecture = "minimax-m3";
};

model::Config m3_gguf(const M3Gguf& wanted, const Logger& log = Logger()) {
    GgufWriter gguf;
    gguf.add("general.architecture", std::string_view(wanted.architecture));
    const auto add = [&](const char* key, auto value) {
        if (wanted.left_out != key) gguf.add(std::string("minimax-m3.") + key, value);
    };
    for (const auto& [key, value] : {std::pair("block_count", 60U),
                                     {"context_length", 1048576U},
                                     {"embedding_length", 6144U},
                                     {"feed_forward_length", 12288U},
                                     {"attention.head_count", 64U},
                                     {"attention.head_count_kv", 4U},
                                     {"attention.key_length", 128U},
                                     {"attention.value_length", 128U},
                                     {"rope.dimension_count", 64U},
                                     {"expert_count", 128U},
                                     {"expert_used_count", 4U},
                                     {"expert_shared_count", 1U},
                                     {"expert_gating_func", 2U},
                                     {"leading_dense_block_count", 3U},
                                     {"attention.indexer.head_count", 4U},
                                     {"attention.indexer.key_length", 128U},
                                     {"attention.indexer.top_k", 16U},
                                     {"attention.indexer.block_size", 128U},
                                     {"attention.indexer.local_blocks", 1U}})
        add(key, value);
    add("attention.layer_norm_rms_epsilon", 1e-6F);
    add("rope.freq_base", 5e6F);
    add("expert_weights_scale", 2.0F);
    add("expert_weights_norm", true);
    if (wanted.has_array) {
        std::vector<int32_t> widths(k_layers, 3072);
        std::fill_n(widths.begin(), 3, wanted.first_ff);
        gguf.add_array("minimax-m3.expert_feed_forward_length", widths);
    } else {
        add("expert_feed_forward_length", 3072U);
    }
    const auto bytes = gguf.bytes();
    const auto header = checkpoint::read_gguf_header(checkpoint::ByteSource("test", bytes));
    return model::config_from_gguf(header.metadata, log);
}

}  // namespace

TEST_CASE("GGUF metadata of M3 give its configuration") {
    const model::Config config = m3_gguf({});
    check_released(config);
    CHECK_FALSE(config.adds_one_to_norms);
    check_released(m3_gguf({.has_array = true}));
    check_released(m3_gguf({.first_ff = 0, .has_array = true}));
    check_released(m3_gguf({.left_out = "attention.indexer.local_blocks"}));
}

TEST_CASE("a GGUF file of M3 without an index, and a vision tower, are refused by name") {
    expect_error(Status::unsupported, "made before the index was converted; convert again",
                 [] { m3_gguf({.left_out = "attention.indexer.head_count"}); });
    expect_error(Status::unsupported, "general.architecture = clip",
                 [] { m3_gguf({.architecture = "clip"}); });
    expect_error(Status::unsupported, "MiniMax-M3.1", [] { m3_gguf({.architecture = "minimax-m3.1"}); });
    for (const char* key : {"feed_forward_length", "expert_feed_forward_length"}) {
        INFO(key);
        expect_error(Status::format, "width", [&] { m3_gguf({.left_out = key}); });
    }
    for (const char* key : {"attention.indexer.top_k", "attention.indexer.key_length",
                            "attention.indexer.block_size", "expert_count"})
        expect_error(Status::format, key, [&] { m3_gguf({.left_out = key}); });
}

}  // namespace minim::test
