// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "checkpoint/gguf_header.h"
#include "model/config.h"
#include "support.h"

using namespace minim;
using namespace minim::test;

namespace {

using Value = std::variant<uint32_t, int32_t, uint64_t, int64_t, float, double, bool, std::string,
                           std::vector<int32_t>>;
using Keys = std::map<std::string, Value>;

// Returns the metadata of a released model.
Keys minimax_m2() {
    return {
        {"general.architecture", std::string("minimax-m2")},
        {"minimax-m2.block_count", 62U},
        {"minimax-m2.context_length", 196608U},
        {"minimax-m2.embedding_length", 3072U},
        {"minimax-m2.feed_forward_length", 1536U},
        {"minimax-m2.attention.head_count", 48U},
        {"minimax-m2.attention.head_count_kv", 8U},
        {"minimax-m2.attention.key_length", 128U},
        {"minimax-m2.attention.value_length", 128U},
        {"minimax-m2.attention.layer_norm_rms_epsilon", 1e-6F},
        {"minimax-m2.rope.freq_base", 5e6F},
        {"minimax-m2.rope.dimension_count", 64U},
        {"minimax-m2.expert_count", 256U},
        {"minimax-m2.expert_used_count", 8U},
        {"minimax-m2.expert_feed_forward_length", 1536U},
        {"minimax-m2.expert_gating_func", 2U},
    };
}

model::Config config_of(const Keys& keys, const Logger& log) {
    GgufWriter gguf;
    for (const auto& entry : keys) {
        const std::string& key = entry.first;
        std::visit(
            [&](const auto& v) {
                if constexpr (std::is_same_v<std::decay_t<decltype(v)>, std::vector<int32_t>>) {
                    gguf.add_array(key, v);
                } else if constexpr (std::is_same_v<std::decay_t<decltype(v)>, std::string>) {
                    gguf.add(key, std::string_view(v));
                } else {
                    gguf.add(key, v);
                }
            },
            entry.second);
    }
    const auto bytes = gguf.bytes();
    const auto header = checkpoint::read_gguf_header(checkpoint::ByteSource("test", bytes));
    return model::config_from_gguf(header.metadata, log);
}

model::Config config_of(const Keys& keys) {
    const Logger silent;
    return config_of(keys, silent);
}

Keys with(const std::string& key, Value value) {
    Keys keys = minimax_m2();
    keys[key.starts_with("general.") ? key : "minimax-m2." + key] = std::move(value);
    return keys;
}

Keys without(const std::string& key) {
    Keys keys = minimax_m2();
    REQUIRE(keys.erase("minimax-m2." + key) == 1);
    return keys;
}

}  // namespace

TEST_CASE("GGUF metadata of a released model gives its configuration") {
    const model::Config config = config_of(with("general.name", std::string("MiniMax M2")));
    CHECK(config.name == "MiniMax M2");
    CHECK(config.n_layer == 62);
    CHECK(config.n_mtp_layer == 0);
    CHECK(config.hidden == 3072);
    CHECK(config.n_head == 48);
    CHECK(config.n_head_kv == 8);
    CHECK(config.head_dim == 128);
    CHECK(config.rotary_dim == 64);
    CHECK(config.n_expert == 256);
    CHECK(config.n_expert_used == 8);
    CHECK(config.expert_ff == 1536);
    CHECK(config.n_context_train == 196608);
    CHECK(config.rope_theta == 5e6);
    CHECK(config.norm_eps == 1e-6F);
    CHECK(config.expert_weights_scale == 1.0F);
}

TEST_CASE("a missing required GGUF key is a format error that names it") {
    for (const char* key : {"block_count", "context_length", "embedding_length", "attention.head_count",
                            "attention.layer_norm_rms_epsilon", "expert_count", "expert_used_count"}) {
        expect_error(Status::format, std::string("minimax-m2.") + key, [&] { config_of(without(key)); });
    }
    Keys keys = without("expert_feed_forward_length");
    keys.erase("minimax-m2.feed_forward_length");
    expect_error(Status::format, "expert width", [&] { config_of(keys); });
    keys = minimax_m2();
    keys.erase("general.architecture");
    expect_error(Status::format, "general.architecture", [&] { config_of(keys); });
}

TEST_CASE("GGUF keys that may be missing are taken as the released models have them") {
    CHECK(config_of(without("expert_gating_func")).n_expert == 256);
    CHECK(config_of(without("attention.value_length")).head_dim == 128);
    CHECK(config_of(without("expert_feed_forward_length")).expert_ff == 1536);
    CHECK(config_of(minimax_m2()).name.empty());
    CHECK(config_of(without("attention.head_count_kv")).n_head_kv == 48);
    Keys keys = without("attention.key_length");
    keys.erase("minimax-m2.attention.value_length");
    CHECK(config_of(keys).head_dim == 64);  // 3072 / 48
    keys["minimax-m2.attention.head_count"] = 0U;
    expect_error(Status::format, "head count is 0", [&] { config_of(keys); });
}

TEST_CASE("a missing rope base is that of the released models, with a warning") {
    Lines lines;
    CHECK(config_of(without("rope.freq_base"), lines.log).rope_theta == 5e6);
    CHECK(lines.holding("minimax-m2.rope.freq_base") == 1);
}

TEST_CASE("a missing rotary width means 64 for heads of 128, with a warning, and is refused for others") {
    Lines lines;
    CHECK(config_of(without("rope.dimension_count"), lines.log).rotary_dim == 64);
    CHECK(lines.holding("minimax-m2.rope.dimension_count") == 1);
    Keys keys = without("rope.dimension_count");
    keys["minimax-m2.attention.key_length"] = 96U;
    keys["minimax-m2.attention.value_length"] = 96U;
    expect_error(Status::format, "rope.dimension_count", [&] { config_of(keys); });
}

TEST_CASE("a GGUF of another architecture or kind is unsupported, by name") {
    for (const char* name : {"minimax-01", "minimax-m3.1", "llama", "MiniMax-M2", ""}) {
        expect_error(Status::unsupported, fmt::format("\"{}\"", name),
                     [&] { config_of(with("general.architecture", std::string(name))); });
    }
    expect_error(Status::unsupported, "adapter",
                 [] { config_of(with("general.type", std::string("adapter"))); });
    CHECK(config_of(with("general.type", std::string("model"))).n_layer == 62);
}

TEST_CASE("MiniMax's other models are named") {
    for (const auto& [architecture, what] :
         {std::pair("minimax-m3.1", "MiniMax-M3.1"), std::pair("minimax-01", "MiniMax-Text-01"),
          std::pair("minimax-text-01", "MiniMax-Text-01"), std::pair("minimax_m1", "MiniMax-M1"),
          std::pair("minimax", "linear attention"), std::pair("minimax-h3", "MiniMax-H3")})
        expect_error(Status::unsupported, what, [&, name = architecture] {
            config_of(with("general.architecture", std::string(name)));
        });
}

TEST_CASE("an architecture that is no text is shown as escapes") {
    expect_error(Status::unsupported, "\\xFF",
                 [] { config_of(with("general.architecture", std::string("\xFF\n"))); });
}

TEST_CASE("what the forward pass does not compute is refused by its GGUF key") {
    const std::vector<std::pair<std::string, Value>> refused = {
        {"attention.sliding_window", 4096U},
        {"expert_group_count", 2U},
        {"expert_shared_count", 1U},
        {"expert_shared_feed_forward_length", 1536U},
        {"leading_dense_block_count", 1U},
        {"attn_logit_softcapping", 50.0F},
        {"final_logit_softcapping", 30.0F},
        {"logit_scale", 0.5F},
        {"residual_scale", 1.5F},
        {"embedding_scale", 12.0F},
        {"attention.scale", 0.1F},
        {"attention.clamp_kqv", 8.0F},
        {"attention.max_alibi_bias", 8.0F},
        {"attention.causal", false},
        {"expert_gating_func", 1U},
        {"expert_gating_func", 3U},
        {"expert_weights_norm", false},
        {"rope.scaling.type", std::string("yarn")},
        {"rope.scaling.type", std::string("linear")},
        {"rope.scaling.factor", 4.0F},
        {"rope.scale_linear", 2.0F},
    };
    for (const auto& [key, value] : refused) {
        expect_error(Status::unsupported, "minimax-m2." + key,
                     [&, k = key, v = value] { config_of(with(k, v)); });
    }
    expect_error(Status::unsupported, "value heads of 64",
                 [] { config_of(with("attention.value_length", 64U)); });
}

TEST_CASE("values that change nothing are accepted") {
    const std::vector<std::pair<std::string, Value>> accepted = {
        {"attention.sliding_window", 0U}, {"expert_group_count", 0U},
        {"expert_group_count", 1U},       {"expert_group_used_count", 1U},
        {"expert_shared_count", 0U},      {"leading_dense_block_count", 0U},
        {"expert_weights_norm", true},    {"rope.scaling.type", std::string("none")},
        {"rope.scaling.factor", 1.0F},    {"rope.scaling.factor", 0.0F},
        {"attention.causal", true},       {"logit_scale", 0.0F},
        {"expert_weights_scale", 0.0F},   {"expert_weights_scale", 1.0F},
        {"nextn_predict_layers", 0U},     {"vocab_size", 200064U},
    };
    for (const auto& [key, value] : accepted) {
        INFO(key);
        CHECK(config_of(with(key, value)).expert_weights_scale == 1.0F);
    }
    Keys keys = with("rope.scaling.type", std::string("none"));
    keys["minimax-m2.rope.scaling.factor"] = 4.0F;
    CHECK(config_of(keys).rope_theta == 5e6);
}

TEST_CASE("an expert weights scale is taken over") {
    CHECK(config_of(with("expert_weights_scale", 2.5F)).expert_weights_scale == 2.5F);
    CHECK(config_of(with("expert_weights_scale", 2.5)).expert_weights_scale == 2.5F);
    for (const float scale : {-1.0F, 1e9F, INFINITY, NAN}) {
        expect_error(Status::format, "expert weights scale",
                     [&] { config_of(with("expert_weights_scale", scale)); });
    }
}

TEST_CASE("multi-token-prediction layers are read as they are announced") {
    Keys keys = with("nextn_predict_layers", 1U);
    keys["minimax-m2.block_count"] = 63U;
    // The tensors show whether they are counted.
    const model::Config config = config_of(keys);
    CHECK(config.n_layer == 63);
    CHECK(config.n_mtp_layer == 1);
}

TEST_CASE("figures that contradict each other or make no sense are format errors") {
    const std::vector<std::tuple<std::string, Value, std::string>> refused = {
        {"attention.head_count_kv", 7U, "48 query heads cannot share 7"},
        {"attention.head_count_kv", 96U, "48 query heads cannot share 96"},
        {"attention.head_count_kv", 0U, "KV head count is 0"},
        {"attention.head_count", 0U, "query head count is 0"},
        {"rope.dimension_count", 63U, "rotary dimension 63"},
        {"rope.dimension_count", 130U, "rotary dimension 130"},
        {"expert_used_count", 257U, "257 experts per token of 256"},
        {"expert_used_count", 0U, "experts per token is 0"},
        {"expert_count", 0U, "expert count is 0"},
        {"block_count", 0U, "layer count is 0"},
        {"embedding_length", 0U, "hidden size is 0"},
        {"context_length", 0U, "context length is 0"},
        {"rope.freq_base", 0.0F, "rope base"},
        {"rope.freq_base", -5e6F, "rope base"},
        {"rope.freq_base", NAN, "rope base"},
        {"attention.layer_norm_rms_epsilon", -1e-6F, "epsilon"},
        {"attention.layer_norm_rms_epsilon", NAN, "epsilon"},
        {"attention.layer_norm_rms_epsilon", 2.0F, "epsilon"},
    };
    for (const auto& [key, value, text] : refused) {
        expect_error(Status::format, text, [&, k = key, v = value] { config_of(with(k, v)); });
    }
}

TEST_CASE("huge figures are format errors") {
    for (const char* key :
         {"block_count", "embedding_length", "attention.head_count", "attention.key_length", "expert_count",
          "expert_used_count", "expert_feed_forward_length", "context_length"}) {
        for (const Value& value :
             {Value(UINT32_MAX), Value(uint64_t{1} << 62), Value(UINT64_MAX), Value(1U << 30)}) {
            INFO(key);
            Keys keys = with(key, value);
            keys.erase("minimax-m2.attention.value_length");
            CHECK(error_of([&] { config_of(keys); }).value().status() == Status::format);
        }
    }
}

TEST_CASE("figures of any integer type are read, of another type refused by key") {
    CHECK(config_of(with("block_count", int32_t{62})).n_layer == 62);
    CHECK(config_of(with("block_count", int64_t{62})).n_layer == 62);
    CHECK(config_of(with("block_count", uint64_t{62})).n_layer == 62);
    expect_error(Status::format, "block_count", [] { config_of(with("block_count", int32_t{-62})); });
    CHECK(config_of(with("block_count", 62.0F)).n_layer == 62);
    CHECK(config_of(with("block_count", 62.0)).n_layer == 62);
    CHECK(config_of(with("attention.head_count_kv", std::vector<int32_t>(62, 8))).n_head_kv == 8);
    CHECK(config_of(with("feed_forward_length", std::vector<int32_t>{1536})).expert_ff == 1536);
    CHECK(config_of(with("rope.freq_base", 5000000U)).rope_theta == 5e6);
    CHECK(config_of(with("expert_weights_norm", 1U)).n_layer == 62);
    CHECK(config_of(with("general.name", 7U)).name.empty());
    for (const char* key : {"logit_scale", "residual_scale", "embedding_scale"})
        CHECK(config_of(with(key, 1.0F)).n_layer == 62);
    for (const float value : {62.5F, -62.0F, 1e30F, INFINITY, NAN})
        expect_error(Status::format, "block_count", [&] { config_of(with("block_count", value)); });
    expect_error(Status::format, "block_count", [] { config_of(with("block_count", uint64_t{1} << 63)); });
    expect_error(Status::format, "empty array",
                 [] { config_of(with("attention.head_count", std::vector<int32_t>{})); });
    expect_error(Status::format, "block_count", [] { config_of(with("block_count", std::string("62"))); });
    expect_error(Status::unsupported, "attention.head_count differs between layers (i32[2] {48, 24})", [] {
        config_of(with("attention.head_count", std::vector<int32_t>{48, 24}));
    });
    expect_error(Status::format, "expert_weights_norm", [] { config_of(with("expert_weights_norm", 2U)); });
    expect_error(Status::unsupported, "expert_weights_norm",
                 [] { config_of(with("expert_weights_norm", 0U)); });
    expect_error(Status::format, "general.architecture", [] { config_of(with("general.architecture", 1U)); });
}
