// SPDX-License-Identifier: Apache-2.0
#include "model/tensor_names.h"

#include <string>
#include <tuple>
#include <utility>

#include "support/catch.h"

using namespace minim::model;

TEST_CASE("a part of a layer has a GGUF name and a safetensors name") {
    CHECK(names::layer(0, names::Part::attn_q)[0] == "blk.0.attn_q.weight");
    CHECK(names::layer(61, names::Part::attn_output)[1] == "model.layers.61.self_attn.o_proj.weight");
    CHECK(names::layer(5, names::Part::ffn_norm)[1] == "model.layers.5.post_attention_layernorm.weight");
    CHECK(names::layer(5, names::Part::ffn_norm)[2] == "blk.5.post_attention_norm.weight");
    CHECK(names::layer(5, names::Part::router) ==
          names::Spellings{"blk.5.ffn_gate_inp.weight", "model.layers.5.block_sparse_moe.gate.weight",
                           "model.layers.5.mlp.gate.weight"});
    CHECK(names::layer(5, names::Part::router_bias).back() ==
          "model.layers.5.mlp.gate.e_score_correction_bias");
    CHECK(names::layer(5, names::Part::router_bias)[0] == "blk.5.exp_probs_b.bias");
}

TEST_CASE("the layer of a name is read, of any other name it is -1") {
    CHECK(names::layer_of("blk.12.attn_q.weight") == 12);
    CHECK(names::layer_of("model.layers.3.mlp.gate.weight") == 3);
    for (const char* name : {"blk.12", "blk..x", "blk.x.y", "blk.12x.y", "block.1.x", "", "model.layer.3.x",
                             "blk.99999999999999999999.x"}) {
        CHECK(names::layer_of(name) == -1);
    }
}

TEST_CASE("multi-token-prediction tensors are told by name") {
    CHECK(names::is_mtp("model.layers.62.self_attn.q_proj.weight", 62, 3));
    CHECK(names::is_mtp("model.layers.64.eh_proj.weight", 62, 3));
    CHECK(names::is_mtp("mtp.layers.0.norm.weight", 62, 0));
    CHECK(names::is_mtp("model.mtp.0.weight", 62, 0));
    CHECK(names::is_mtp("blk.62.nextn.eh_proj.weight", 62, 0));
    CHECK(names::is_mtp("blk.62.attn_q.weight", 62, 1));
    CHECK(names::is_mtp("model.layers.62.enorm.weight", 62, 0));
    CHECK(names::marks_mtp("model.layers.62.shared_head.norm.weight"));
    CHECK_FALSE(names::marks_mtp("model.embed_tokens.weight"));
    CHECK_FALSE(names::marks_mtp("blk.3.attn_norm.weight"));
}

TEST_CASE("tensors of the model and of layers beyond the declared ones are no multi-token prediction") {
    CHECK_FALSE(names::is_mtp("model.layers.61.self_attn.q_proj.weight", 62, 3));
    CHECK_FALSE(names::is_mtp("model.layers.65.self_attn.q_proj.weight", 62, 3));
    CHECK_FALSE(names::is_mtp("model.layers.62.self_attn.q_proj.weight", 62, 0));
    CHECK_FALSE(names::is_mtp("blk.61.nextn.eh_proj.weight", 62, 1));
    CHECK_FALSE(names::is_mtp("blk.62.attn_q.weight", 62, 0));
    CHECK_FALSE(names::is_mtp("blk.x.nextn.eh_proj.weight", 62, 1));
}

TEST_CASE("an expert has the official names and those of newer tools, in any mixture") {
    CHECK(names::single_expert(3, 17, names::ExpertPart::up) ==
          names::Spellings{"model.layers.3.block_sparse_moe.experts.17.w3.weight",
                           "model.layers.3.block_sparse_moe.experts.17.up_proj.weight",
                           "model.layers.3.mlp.experts.17.w3.weight",
                           "model.layers.3.mlp.experts.17.up_proj.weight"});
    CHECK(names::single_expert(0, 0, names::ExpertPart::gate)[1].ends_with(".gate_proj.weight"));
    CHECK(names::single_expert(0, 0, names::ExpertPart::down)[0].ends_with(".w2.weight"));
    CHECK(names::fused_down_hf(2)[0] == "model.layers.2.block_sparse_moe.experts.down_proj");
}

TEST_CASE("rotary frequencies and scales of what is not quantised here are ignored") {
    for (const char* name :
         {"model.layers.0.self_attn.rotary_emb.inv_freq", "model.layers.0.self_attn.q_scale",
          "model.layers.0.self_attn.attn.k_scale", "model.layers.7.self_attn.v_proj.output_scale",
          "model.layers.7.self_attn.k_proj.v_scale", "model.layers.7.self_attn.kv_scale",
          "model.layers.7.mlp.experts.3.w1.input_scale", "lm_head.input_global_scale",
          "model.layers.7.self_attn.k_zero_point"})
        CHECK(names::is_ignored(name));
    for (const char* name : {"rope_freqs.weight", "inv_freq", "model.layers.0.self_attn.q_proj.weight_scale",
                             "model.layers.0.self_attn.q_proj.bias", "blk.0.attn_q.scale",
                             "model.layers.0.self_attn.q_proj.weight_zero_point", "model.layers.0.xk_scale"})
        CHECK_FALSE(names::is_ignored(name));
}

TEST_CASE("the prefix of a language model is dropped and added") {
    using names::Prefix;
    for (const auto& [stored, plain, prefix] :
         {std::tuple("language_model.model.layers.0.mlp.up_proj.weight", "model.layers.0.mlp.up_proj.weight",
                     Prefix::outer),
          {"language_model.lm_head.weight", "lm_head.weight", Prefix::outer},
          {"model.language_model.embed_tokens.weight", "model.embed_tokens.weight", Prefix::inner}}) {
        INFO(stored);
        CHECK(names::without_prefix(stored) == std::pair(std::string(plain), prefix));
        CHECK(names::with_prefix(plain, prefix) == stored);
        CHECK(names::with_prefix(stored, prefix) == stored);  // it has the prefix already
    }
    CHECK(names::with_prefix("lm_head.weight", Prefix::inner) == "lm_head.weight");
    for (const char* other : {"model.norm.weight", "lm_head.weight", "blk.0.attn_q.weight", "vision_tower.x",
                              "language_model.other.weight"}) {
        CHECK(names::without_prefix(other) == std::pair(std::string(other), Prefix::none));
        CHECK(names::with_prefix(other, Prefix::none) == other);
    }
    CHECK(names::with_prefix("blk.0.attn_q.weight", Prefix::outer) == "blk.0.attn_q.weight");
}

TEST_CASE("the index and the dense feed-forwards of M3 have names in every kind of file") {
    CHECK(names::layer(3, names::Part::index_q) ==
          names::Spellings{"blk.3.indexer.q_proj.weight", "model.layers.3.self_attn.index_q_proj.weight",
                           "model.layers.3.self_attn.indexer.q_proj.weight"});
    CHECK(names::layer(3, names::Part::index_k)[0] == "blk.3.indexer.k_proj.weight");
    CHECK(names::layer(3, names::Part::index_q_norm)[1] == "model.layers.3.self_attn.index_q_norm.weight");
    CHECK(names::layer(3, names::Part::index_k_norm)[2] == "model.layers.3.self_attn.indexer.k_norm.weight");
    CHECK(names::dense(0, names::ExpertPart::gate) ==
          names::Spellings{"blk.0.ffn_gate.weight", "model.layers.0.mlp.gate_proj.weight"});
    CHECK(names::shared_expert(3, names::ExpertPart::down) ==
          names::Spellings{"blk.3.ffn_down_shexp.weight",
                           "model.layers.3.block_sparse_moe.shared_experts.down_proj.weight",
                           "model.layers.3.mlp.shared_experts.down_proj.weight"});
    CHECK(names::fused_gate_up_dense(0)[0] == "model.layers.0.mlp.gate_up_proj.weight");
    CHECK(names::fused_gate_up_shared(3)[1] == "model.layers.3.mlp.shared_experts.gate_up_proj.weight");
}

TEST_CASE("tensors of a vision tower are told by name") {
    for (const char* name : {"vision_tower.patch.weight", "multi_modal_projector.linear_1.weight",
                             "patch_merge_mlp.0.weight", "model.vision_tower.x", "model.patch_merge_mlp.x"})
        CHECK(names::is_vision(name));
    for (const char* name : {"model.layers.0.mlp.up_proj.weight", "vision.weight", "lm_head.weight"})
        CHECK_FALSE(names::is_vision(name));
}
