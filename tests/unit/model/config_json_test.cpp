// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <tuple>
#include <vector>

#include <nlohmann/json.hpp>

#include "model/config.h"
#include "support.h"

using namespace minim;
using namespace minim::test;
using nlohmann::json;

namespace {

// Returns the members of a released model's config.json that describe the network.
json minimax_m2() {
    return {
        {"architectures", {"MiniMaxM2ForCausalLM"}},
        {"model_type", "minimax_m2"},
        {"attn_type_list", std::vector<int>(62, 1)},
        {"head_dim", 128},
        {"hidden_act", "silu"},
        {"hidden_size", 3072},
        {"intermediate_size", 1536},
        {"max_position_embeddings", 196608},
        {"mlp_intermediate_size", 8192},
        {"mtp_transformer_layers", 1},
        {"num_attention_heads", 48},
        {"num_experts_per_tok", 8},
        {"num_hidden_layers", 62},
        {"num_key_value_heads", 8},
        {"num_local_experts", 256},
        {"num_mtp_modules", 3},
        {"qk_norm_type", "per_layer"},
        {"rms_norm_eps", 1e-6},
        {"rope_theta", 5000000},
        {"rotary_dim", 64},
        {"scoring_func", "sigmoid"},
        {"shared_intermediate_size", 0},
        {"tie_word_embeddings", false},
        {"use_mtp", true},
        {"use_qk_norm", true},
        {"use_routing_bias", true},
        {"vocab_size", 200064},
    };
}

model::Config config_of(const json& object) {
    const Logger silent;
    return model::config_from_json(object.dump(), silent);
}

model::Config config_of_text(const std::string& text) {
    const Logger silent;
    return model::config_from_json(text, silent);
}

json with(const char* key, json value) {
    json object = minimax_m2();
    object[key] = std::move(value);
    return object;
}

json without(const char* key) {
    json object = minimax_m2();
    REQUIRE(object.erase(key) == 1);
    return object;
}

json with_layer(const char* key, size_t layer, const json& value, const json& others) {
    json list = std::vector<json>(62, others);
    list[layer] = value;
    return with(key, list);
}

}  // namespace

TEST_CASE("config.json of a released model gives its configuration") {
    const model::Config config = config_of(minimax_m2());
    CHECK(config.n_layer == 62);
    CHECK(config.n_mtp_layer == 3);
    CHECK(config.hidden == 3072);
    CHECK(config.n_head == 48);
    CHECK(config.n_head_kv == 8);
    CHECK(config.head_dim == 128);
    CHECK(config.rotary_dim == 64);
    CHECK(config.n_expert == 256);
    CHECK(config.n_expert_used == 8);
    CHECK(config.expert_ff == 1536);
    CHECK(config.n_vocab == 200064);
    CHECK(config.n_context_train == 196608);
    CHECK(config.rope_theta == 5e6);
    CHECK(config.norm_eps == 1e-6F);
    CHECK(config.expert_weights_scale == 1.0F);
    CHECK(config.needs_router_bias);
}

TEST_CASE("the architecture decides, whatever the model type") {
    CHECK(config_of(with("model_type", "minimax")).n_layer == 62);
    CHECK(config_of(with("architectures", {"Other", "MiniMaxM2ForCausalLM"})).n_layer == 62);
    expect_error(Status::unsupported, "MiniMaxText01ForCausalLM",
                 [] { config_of(with("architectures", {"MiniMaxText01ForCausalLM"})); });
    const std::tuple<json, std::string> others[] = {
        {{"MiniMaxM3VLForConditionalGeneration"}, "architecture"},
        {{"MiniMaxM3_1ForCausalLM"}, "the model is MiniMax-M3.1"},
        {{"MiniMaxH3Model"}, "MiniMax-H3"},
        {{"MiniMaxM1ForCausalLM"}, "MiniMax-M1, which has linear attention"},
        {{"MiniMaxText01ForCausalLM"}, "MiniMax-Text-01, which has linear attention"},
        {{"MiniMaxVL01ForConditionalGeneration"}, "MiniMax-VL-01"},
        {{"MiniMaxForCausalLM"}, "MiniMax-Text-01 or M1"},
        {{"Custom"}, "MiniMax-H3"}};  // refused by its model_type
    for (const auto& [names, text] : others) {
        json object = with("architectures", names);
        if (names == json{"Custom"}) object["model_type"] = "minimax_h3";
        expect_error(Status::unsupported, text, [&] { config_of(object); });
    }
    json typed = without("architectures");
    typed["model_type"] = "minimax_m1";
    expect_error(Status::unsupported, "MiniMax-M1", [&] { config_of(typed); });
    expect_error(Status::unsupported, "architecture [\"LlamaForCausalLM\"] is not supported",
                 [] { config_of(with("architectures", {"LlamaForCausalLM"})); });
    for (const json& value : {json(), json("MiniMaxM2ForCausalLM"), json::array()}) {
        expect_error(Status::format, "architectures", [&] { config_of(with("architectures", value)); });
    }
    expect_error(Status::format, "architectures", [] { config_of(without("architectures")); });
}

TEST_CASE("a missing required key of config.json is a format error that names it") {
    for (const char* key : {"num_hidden_layers", "hidden_size", "num_attention_heads", "num_key_value_heads",
                            "head_dim", "rms_norm_eps", "num_local_experts", "num_experts_per_tok",
                            "intermediate_size", "max_position_embeddings", "rope_theta"}) {
        expect_error(Status::format, key, [&] { config_of(without(key)); });
        expect_error(Status::format, key, [&] { config_of(with(key, nullptr)); });
        expect_error(Status::format, key, [&] { config_of(with(key, "64")); });
    }
}

TEST_CASE("a fractional, negative or huge count in config.json is a format error") {
    for (const char* key : {"num_hidden_layers", "hidden_size", "num_attention_heads", "num_key_value_heads",
                            "head_dim", "num_local_experts", "num_experts_per_tok", "intermediate_size",
                            "vocab_size", "max_position_embeddings", "rotary_dim", "num_mtp_modules"}) {
        for (const json& value :
             {json(8.5), json(-8), json(INT64_MIN), json(UINT64_MAX), json(int64_t{1} << 40)}) {
            INFO(key << " " << value.dump());
            const auto error = error_of([&] { config_of(with(key, value)); });
            REQUIRE(error);
            CHECK(error->status() == Status::format);
        }
    }
}

TEST_CASE("text that is no JSON object is a format error") {
    for (const char* text : {"", "[]", "null", "{", "{\"a\":}", "\xFF"}) {
        expect_error(Status::format, "config.json", [&] { config_of_text(text); });
    }
}

TEST_CASE("deeply nested JSON is refused, not followed") {
    std::string text = R"({"architectures":["MiniMaxM2ForCausalLM"],"sliding_window":)";
    text.append(500000, '[').append(500000, ']').append("}");
    expect_error(Status::format, "nested", [&] { config_of_text(text); });
}

TEST_CASE("the first layer of linear attention is named") {
    expect_error(Status::unsupported, "layer 7 ", [] { config_of(with_layer("attn_type_list", 7, 0, 1)); });
    expect_error(Status::unsupported, "layer 61 ", [] { config_of(with_layer("attn_type_list", 61, 2, 1)); });
    CHECK(config_of(without("attn_type_list")).n_layer == 62);
    expect_error(Status::format, "attn_type_list",
                 [] { config_of(with("attn_type_list", std::vector<int>(61, 1))); });
    expect_error(Status::format, "attn_type_list", [] { config_of(with("attn_type_list", 1)); });
}

TEST_CASE("layer types other than full attention are refused, by layer") {
    CHECK(config_of(with_layer("layer_types", 0, "full_attention", "full_attention")).n_layer == 62);
    expect_error(Status::unsupported, "layer 3 is of type \"sliding_attention\"",
                 [] { config_of(with_layer("layer_types", 3, "sliding_attention", "full_attention")); });
    expect_error(Status::format, "layer_types", [] { config_of(with("layer_types", {"full_attention"})); });
    expect_error(Status::format, "layer_types", [] { config_of(with("layer_types", "full_attention")); });
}

TEST_CASE("dense layers are refused, by layer") {
    CHECK(config_of(with("moe_layer_freq", 1)).n_layer == 62);
    CHECK(config_of(with_layer("moe_layer_freq", 0, 1, 1)).n_layer == 62);
    expect_error(Status::unsupported, "layer 0 is dense",
                 [] { config_of(with_layer("moe_layer_freq", 0, 0, 1)); });
    expect_error(Status::format, "moe_layer_freq", [] { config_of(with("moe_layer_freq", 2)); });
}

TEST_CASE("what the forward pass does not compute is refused by its key in config.json") {
    const std::vector<std::pair<const char*, json>> refused = {
        {"sliding_window", 4096},
        {"attn_window_size", 1024},
        {"layernorm_linear_attention_alpha", 3.5},
        {"postnorm", true},
        {"shared_intermediate_size", 1536},
        {"sparse_attention_config", {{"block", 64}}},
        {"use_gemma_norm", true},
        {"attention_bias", true},
        {"tie_word_embeddings", true},
        {"n_group", 8},
        {"num_expert_group", 2},
        {"topk_group", 4},
        {"scoring_func", "softmax"},
        {"hidden_act", "gelu"},
        {"use_qk_norm", false},
        {"qk_norm_type", "per_head"},
        {"rope_scaling", {{"type", "yarn"}, {"factor", 4.0}}},
        {"rope_scaling", {{"rope_type", "linear"}, {"factor", 2.0}}},
        {"rope_scaling", {{"factor", 2.0}}},
        {"rope_scaling", "linear"},
        {"rope_parameters", {{"rope_type", "dynamic"}, {"rope_theta", 5e6}}},
    };
    for (const auto& [key, value] : refused) {
        expect_error(Status::unsupported, key, [&, k = key, v = value] { config_of(with(k, v)); });
    }
}

TEST_CASE("values of config.json that change nothing are accepted") {
    const std::vector<std::pair<const char*, json>> accepted = {
        {"sliding_window", nullptr},
        {"sliding_window", 0},
        {"attention_bias", false},
        {"postnorm", false},
        {"n_group", nullptr},
        {"n_group", 0},
        {"n_group", 1},
        {"topk_group", 1},
        {"rope_scaling", nullptr},
        {"rope_scaling", {{"type", "default"}}},
        {"rope_scaling", json::object()},
        {"use_mtp", false},
        {"scoring_func", nullptr},
        {"routed_scaling_factor", 1},
        {"routed_scaling_factor", 0},
        {"mlp_intermediate_size", 1},
        {"tie_word_embeddings", nullptr},
    };
    for (const auto& [key, value] : accepted) {
        INFO(key << " " << value.dump());
        const model::Config config = config_of(with(key, value));
        CHECK(config.expert_ff == 1536);
        CHECK(config.rotary_dim == 64);
        CHECK(config.expert_weights_scale == 1.0F);
    }
}

TEST_CASE("the rotary width is never a silent default, and a partial factor is applied once") {
    json object = without("rotary_dim");
    expect_error(Status::format, "rotary_dim", [&] { config_of(object); });

    object["partial_rotary_factor"] = 0.5;
    CHECK(config_of(object).rotary_dim == 64);
    object["rope_parameters"] = {{"rope_theta", 1e6}, {"rope_type", "default"}};
    CHECK(config_of(object).rotary_dim == 64);
    CHECK(config_of(object).rope_theta == 1e6);
    object["rope_parameters"]["partial_rotary_factor"] = 0.25;
    CHECK(config_of(object).rotary_dim == 32);
    // If rotary_dim is given, partial_rotary_factor is ignored.
    object["rotary_dim"] = 64;
    CHECK(config_of(object).rotary_dim == 64);
}

TEST_CASE("a senseless partial factor is a format error") {
    json object = without("rotary_dim");
    for (const json& factor :
         {json(0.0), json(-0.5), json(1.5), json(1e300), json("half"), json(1.0 / 128)}) {
        object["partial_rotary_factor"] = factor;
        INFO(factor.dump());
        CHECK(error_of([&] { config_of(object); }).value().status() == Status::format);
    }
}

TEST_CASE("a routed scaling factor is taken over, and one that is no number refused") {
    CHECK(config_of(with("routed_scaling_factor", 2.5)).expert_weights_scale == 2.5F);
    expect_error(Status::format, "routed_scaling_factor",
                 [] { config_of(with("routed_scaling_factor", "2.5")); });
    expect_error(Status::format, "scale", [] { config_of(with("routed_scaling_factor", -2.5)); });
}

TEST_CASE("figures of config.json that contradict each other are format errors") {
    const std::vector<std::tuple<const char*, json, const char*>> refused = {
        {"num_key_value_heads", 7, "48 query heads cannot share 7"},
        {"rotary_dim", 63, "rotary dimension 63"},
        {"rotary_dim", 130, "rotary dimension 130"},
        {"num_experts_per_tok", 257, "257 experts per token of 256"},
        {"rope_theta", 0, "rope base"},
        {"rms_norm_eps", -1.0, "epsilon"},
    };
    for (const auto& [key, value, text] : refused) {
        expect_error(Status::format, text, [&, k = key, v = value] { config_of(with(k, v)); });
    }
}

TEST_CASE("what tensors do not show is taken from the configuration of quantised folders") {
    const auto hints = [](const json& quantization) {
        json object = minimax_m2();
        object["quantization_config"] = quantization;
        return config_of(object).packing;
    };
    const auto gptq = hints(
        {{"quant_method", "gptq"}, {"bits", 4}, {"group_size", 32}, {"desc_act", true}, {"sym", false}});
    CHECK(gptq.gptq_zero_bias == 1);
    CHECK(gptq.orders_inputs);
    CHECK(gptq.symmetric == false);
    REQUIRE(gptq.groups.size() == 1);
    CHECK((gptq.groups[0].bits == 4 && gptq.groups[0].size == 32));
    const auto second = hints({{"quant_method", "gptq"},
                               {"bits", 8},
                               {"checkpoint_format", "gptq_v2"},
                               {"dynamic", {{"+:.*w2", {{"bits", 4}}}}}});
    CHECK(second.gptq_zero_bias == 0);
    CHECK(second.groups.back().bits == 4);
    CHECK(
        hints({{"quant_method", "auto-round"}, {"packing_format", "auto_round:auto_gptq"}}).gptq_zero_bias ==
        1);
    CHECK(hints({{"quant_method", "auto-round"}, {"packing_format", "auto_round"}}).gptq_zero_bias == 0);
    const json ints = {{"num_bits", 4},    {"type", "int"},     {"strategy", "group"},
                       {"group_size", 64}, {"symmetric", true}, {"actorder", "group"}};
    const json floats = {{"num_bits", 8}, {"type", "float"}, {"strategy", "channel"}};
    const auto mixed =
        hints({{"quant_method", "compressed-tensors"},
               {"config_groups", {{"group_0", {{"weights", floats}}}, {"group_1", {{"weights", ints}}}}}});
    CHECK(mixed.orders_inputs);
    CHECK(mixed.symmetric == true);
    REQUIRE(mixed.groups.size() == 1);
    CHECK(mixed.groups[0].size == 64);
    CHECK(hints({{"quant_method", "mxfp8"}, {"weight_block_size", {1, 32}}}).groups.empty());
    const auto quark = [&](const json& whole, const json& layers) {
        return hints({{"quant_method", "quark"},
                      {"global_quant_config", {{"weight", {{"dtype", "int8"}, {"symmetric", whole}}}}},
                      {"layer_quant_config", layers}})
            .symmetric;
    };
    CHECK(quark(true, json::object()) == true);
    CHECK(quark(true, {{"*.w1", {{"weight", {{"symmetric", true}}}}}}) == true);
    CHECK_FALSE(quark(true, {{"*.w1", {{"weight", {{"symmetric", false}}}}}}));
    CHECK_FALSE(quark(false, json::object()));
    CHECK_FALSE(quark(nullptr, json::object()));
}

TEST_CASE("quantised folders are read as far as their configuration is known") {
    const auto with = [](const json& quantization) {
        json object = minimax_m2();
        object["quantization_config"] = quantization;
        return object;
    };
    for (const json& known :
         {json{{"quant_method", "fp8"}, {"fmt", "float8_e4m3fn"}, {"weight_block_size", {128, 128}}},
          json{{"quant_method", "fp8"}}, json{{"quant_method", "modelopt"}, {"quant_algo", "NVFP4"}},
          json{{"quant_method", "compressed-tensors"}, {"format", "nvfp4-pack-quantized"}},
          json{{"quant_method", "awq"}, {"bits", 4}, {"group_size", 128}, {"version", "gemm"}}})
        CHECK_NOTHROW(config_of(with(known)));
    const std::tuple<json, std::string> refused[] = {
        {{{"quant_method", "gptq"}, {"bits", 3}}, "bits = 3"},
        {{{"quant_method", "gptq"}, {"bits", 4}, {"checkpoint_format", "marlin"}},
         "checkpoint_format = \"marlin\""},
        {{{"quant_method", "auto-round"}, {"bits", 2}}, "bits = 2"},
        {{{"quant_method", "auto-round"}, {"packing_format", "auto_round:exl"}}, "packing_format"},
        {{{"quant_method", "compressed-tensors"}, {"format", "marlin-24"}}, "format = \"marlin-24\""},
        {{{"quant_method", "compressed-tensors"}, {"sparsity_config", {{"format", "sparse-24-bitmask"}}}},
         "sparsity_config"},
        {{{"quant_method", "own"}}, "quant_method = \"own\""},
        {{{"quant_method", "fp8"}, {"fmt", "e5m2"}}, "fmt = \"e5m2\""},
        {{{"quant_method", "fp8"}, {"weight_block_size", {1, 32}}}, "weight_block_size"},
        {{{"quant_method", "awq"}, {"bits", 8}}, "bits = 8"},
        {{{"quant_method", "awq"}, {"version", "gemv"}}, "version = \"gemv\""}};
    for (const auto& [quantization, part] : refused)
        expect_error(Status::unsupported, part, [&, &q = quantization] { config_of(with(q)); });
    expect_error(Status::format, "quant_method", [&] { config_of(with(json::object())); });
    CHECK_NOTHROW(config_of(with({{"quant_algo", "NVFP4"}, {"producer", {{"name", "modelopt"}}}})));
}

TEST_CASE("formats of other frameworks are unsupported, by name") {
    const json mlx = {{"group_size", 32}, {"bits", 6}};
    const std::tuple<json, std::string> others[] = {
        {mlx, "quantised by MLX"},
        {{{"group_size", 32}, {"bits", 4}, {"mode", "mxfp4"}}, "quantised by MLX"},
        {{{"quant_method", "mlx"}, {"bits", 4}}, "quantised by MLX"},
        {{{"quant_method", "exl3"}, {"bits", 3.5}, {"head_bits", 6}}, "quantised by EXL3"},
        {{{"quant_method", "hqq"}, {"skip_modules", {"lm_head"}}}, "quantised by HQQ"},
        {{{"quant_config", {{"weight_quant_params", {{"nbits", 4}}}}}}, "quantised by HQQ"},
        {{{"quant_method", "bitsandbytes"}, {"load_in_8bit", true}}, "quantised by bitsandbytes"},
        {{{"load_in_4bit", true}, {"bnb_4bit_quant_type", "nf4"}}, "quantised by bitsandbytes"},
        {{{"quant_method", "TorchAO"}}, "quantised by torchao"},
        {{{"quant_method", "aqlm"}}, "quantised by AQLM"}};
    for (const auto& [quantization, text] : others) {
        json object = minimax_m2();
        object["quantization_config"] = quantization;
        expect_error(Status::unsupported, text, [&] { config_of(object); });
    }
    json object = minimax_m2();
    object["quantization"] = mlx;
    expect_error(Status::unsupported,
                 "quantised by MLX, the framework for Apple's processors (config.json: quantization = {",
                 [&] { config_of(object); });
    object["quantization"]["model.layers.0.self_attn.q_proj"] = {{"note", std::string(5000, 'x')}};
    expect_error(Status::unsupported, "...) is not supported", [&] { config_of(object); });
}

TEST_CASE("numbers that are not finite do no harm where they are not used") {
    std::string text = minimax_m2().dump();
    text.back() = ',';
    const auto config_with = [&](const std::string& member) {
        return model::config_from_json(text + member + "}", Logger());
    };
    CHECK(config_with(R"("time_step_limit": [0.0, Infinity])").n_layer == 62);
    CHECK(config_with(R"("x": {"y": [-Infinity, NaN, "NaN"]}, "z": NaN)").hidden == 3072);
    expect_error(Status::format, "rope base", [&] { config_with(R"("rope_theta": Infinity)"); });
    expect_error(Status::format, "epsilon", [&] { config_with(R"("rms_norm_eps": NaN)"); });
    expect_error(Status::format, "num_hidden_layers is Infinity",
                 [&] { config_with(R"("num_hidden_layers": Infinity)"); });
    expect_error(Status::unsupported, "sliding_window = NaN",
                 [&] { config_with(R"("sliding_window": NaN)"); });
    expect_error(Status::format, "rota",
                 [&] { config_with(R"("rotary_dim": null, "partial_rotary_factor": Infinity)"); });
}

TEST_CASE("what config.json has in text_config counts where the file itself has nothing") {
    json nested = {{"architectures", {"MiniMaxM2ForCausalLM"}}, {"text_config", minimax_m2()}};
    nested["text_config"].erase("architectures");
    CHECK(config_of(nested).n_layer == 62);
    CHECK(config_of(nested).n_mtp_layer == 3);
    nested["num_hidden_layers"] = nullptr;
    CHECK(config_of(nested).n_layer == 62);
    json both = with("text_config", {{"num_hidden_layers", 5}, {"sliding_window", 4096}});
    expect_error(Status::unsupported, "sliding_window", [&] { config_of(both); });
    both["text_config"].erase("sliding_window");
    CHECK(config_of(both).n_layer == 62);
    CHECK(config_of(with("text_config", "none")).n_layer == 62);
}

TEST_CASE("every member of a quantization_config in text_config counts") {
    const json gptq = {{"quant_method", "gptq"},         {"bits", 4},        {"group_size", 64},
                       {"checkpoint_format", "gptq_v2"}, {"desc_act", true}, {"sym", false}};
    const auto check = [](const model::Config& config) {
        CHECK(config.packing.gptq_zero_bias == 0);
        CHECK(config.packing.orders_inputs);
        CHECK(config.packing.symmetric == false);
        REQUIRE(config.packing.groups.size() == 1);
        CHECK(config.packing.groups[0].size == 64);
    };
    json object = minimax_m2();
    object["text_config"]["quantization_config"] = gptq;
    check(config_of(object));
    object["quantization_config"] = {{"quant_method", "gptq"}, {"bits", 4}};  // and the rest in text_config
    check(config_of(object));
    object["text_config"]["quantization_config"] = {{"quant_method", "gptq"}, {"bits", 3}};
    object.erase("quantization_config");
    expect_error(Status::unsupported, "bits = 3", [&] { config_of(object); });
    object["text_config"] = {{"quantization", {{"group_size", 64}, {"bits", 4}}}};
    expect_error(Status::unsupported, "MLX", [&] { config_of(object); });
    object["text_config"] = {{"quantization_config", {{"quant_method", "exl3"}, {"bits", 4}}}};
    expect_error(Status::unsupported, "quantization_config", [&] { config_of(object); });
}

TEST_CASE("layers of multi-token prediction have two names, and lists may go on with them") {
    CHECK(config_of(with("num_nextn_predict_layers", 2)).n_mtp_layer == 2);
    CHECK(config_of(with("mtp_transformer_layers", 4)).n_mtp_layer == 12);
    CHECK(config_of(without("num_mtp_modules")).n_mtp_layer == 0);
    CHECK(config_of(with("attn_type_list", std::vector<int>(65, 1))).n_layer == 62);
    expect_error(Status::format, "attn_type_list",
                 [] { config_of(with("attn_type_list", std::vector<int>(61, 1))); });
}
