#include "model/tensor_names.h"

#include <string>

#include "support/catch.h"

using namespace minim::model;

TEST_CASE("a part of a layer has a GGUF name and a safetensors name") {
    CHECK(names::layer(0, names::Part::attn_q)[0] == "blk.0.attn_q.weight");
    CHECK(names::layer(61, names::Part::attn_output)[1] == "model.layers.61.self_attn.o_proj.weight");
    CHECK(names::layer(5, names::Part::ffn_norm)[1] == "model.layers.5.post_attention_layernorm.weight");
    CHECK(names::layer(5, names::Part::ffn_norm)[2] == "blk.5.post_attention_norm.weight");
    CHECK(names::layer(5, names::Part::router)[2] == "model.layers.5.mlp.gate.weight");
    CHECK(names::layer(5, names::Part::router_bias)[0] == "blk.5.exp_probs_b.bias");
}

TEST_CASE("the layer of a GGUF name is read, of any other name it is -1") {
    CHECK(names::gguf_layer("blk.12.attn_q.weight") == 12);
    for (const char* name : {"blk.12", "blk..x", "blk.x.y", "blk.12x.y", "block.1.x", "", "model.layers.3.x",
                             "blk.99999999999999999999.x"}) {
        CHECK(names::gguf_layer(name) == -1);
    }
}

TEST_CASE("multi-token-prediction tensors are told by name") {
    CHECK(names::is_mtp("model.layers.62.self_attn.q_proj.weight", 62, 3));
    CHECK(names::is_mtp("model.layers.64.eh_proj.weight", 62, 3));
    CHECK(names::is_mtp("mtp.layers.0.norm.weight", 62, 0));
    CHECK(names::is_mtp("model.mtp.0.weight", 62, 0));
    CHECK(names::is_mtp("blk.62.nextn.eh_proj.weight", 62, 0));
}

TEST_CASE("tensors of the model and of layers beyond the declared ones are no multi-token prediction") {
    CHECK_FALSE(names::is_mtp("model.layers.61.self_attn.q_proj.weight", 62, 3));
    CHECK_FALSE(names::is_mtp("model.layers.65.self_attn.q_proj.weight", 62, 3));
    CHECK_FALSE(names::is_mtp("model.layers.62.self_attn.q_proj.weight", 62, 0));
    CHECK_FALSE(names::is_mtp("blk.61.nextn.eh_proj.weight", 62, 1));
    CHECK_FALSE(names::is_mtp("blk.62.attn_q.weight", 62, 1));
    CHECK_FALSE(names::is_mtp("blk.x.nextn.eh_proj.weight", 62, 1));
}

TEST_CASE("only precomputed rotary frequencies are ignored") {
    CHECK(names::is_ignored("model.layers.0.self_attn.rotary_emb.inv_freq"));
    CHECK_FALSE(names::is_ignored("rope_freqs.weight"));
    CHECK_FALSE(names::is_ignored("inv_freq"));
}
