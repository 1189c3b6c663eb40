// SPDX-License-Identifier: Apache-2.0
#include "convert/rules.h"

#include <string>
#include <vector>

#include "base/error.h"
#include "support/catch.h"
#include "support/helpers.h"
#include "unit/convert/support.h"

namespace minim::convert {
namespace {

using enum Format;

const Source& tiny() {
    static const Source k_source = open_source(testing::k_q8_0, Logger());
    return k_source;
}

std::map<std::string, Format> types_of(const TypeOptions& options, const Source& source = tiny()) {
    const auto chosen = choose_types(options, source.tensors, source.is_gguf(), source.config.n_layer, false);
    std::map<std::string, Format> types;
    for (size_t i = 0; i < chosen.size(); ++i) types[source.tensors[i].name] = chosen[i].type;
    return types;
}

TypeOptions recipe(const char* name) {
    return {.target = Target::recipe, .recipe = find_recipe(name)};
}

std::string refusal(const TypeOptions& options, const Source& source = tiny()) {
    const auto error = test::error_of([&] { types_of(options, source); });
    REQUIRE(error);
    CHECK(error->status() == Status::invalid);
    return error->what();
}

bool has(const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("the first rule that matches decides, before the recipe") {
    TypeOptions options = recipe("Q4_K_M");
    options.rules = {"ffn_(gate|up)_exps=iq3_s", "blk\\.1\\.=q6_K", "_exps=Q2_K"};
    const auto types = types_of(options);
    CHECK(types.at("blk.0.ffn_gate_exps.weight") == iq3_s);
    CHECK(types.at("blk.1.ffn_up_exps.weight") == iq3_s);
    CHECK(types.at("blk.1.ffn_down_exps.weight") == q6_k);
    CHECK(types.at("blk.1.attn_q.weight") == q6_k);
    CHECK(types.at("blk.2.ffn_down_exps.weight") == q2_k);
    CHECK(types.at("blk.2.attn_q.weight") == q4_k);
    CHECK(types.at("output.weight") == q6_k);
    // Norms and biases never change; the router only for plain types.
    CHECK(types.at("blk.1.attn_norm.weight") == f32);
    CHECK(types.at("blk.1.exp_probs_b.bias") == f32);
    CHECK(types.at("blk.1.ffn_gate_inp.weight") == f32);
    options.rules = {"blk=bf16"};
    CHECK(types_of(options).at("blk.1.ffn_gate_inp.weight") == bf16);
    CHECK(types_of(options).at("blk.1.attn_norm.weight") == f32);
}

TEST_CASE("types of output and embedding come before rules, rules before the recipe's main type") {
    TypeOptions options = recipe("IQ2_M");
    options.allows_requantize = true;
    options.is_pure = true;
    CHECK(types_of(options).at("output.weight") == iq2_s);
    CHECK(types_of(options).at("blk.0.attn_v.weight") == iq2_s);
    options.output_type = q5_k;
    options.embedding_type = q4_k;
    options.rules = {".=q3_k"};
    const auto types = types_of(options);
    CHECK(types.at("output.weight") == q5_k);
    CHECK(types.at("token_embd.weight") == q4_k);
    CHECK(types.at("blk.0.attn_v.weight") == q3_k);
    options.keeps_output = true;
    CHECK(types_of(options).at("output.weight") == q8_0);
}

TEST_CASE("rules that cannot be understood or match nothing are refused with their text") {
    const auto of_rule = [](const char* rule) {
        TypeOptions options = recipe("Q4_K_M");
        options.rules = {rule};
        const std::string why = refusal(options);
        CHECK(has(why, rule));
        return why;
    };
    CHECK(has(of_rule("attn_q=q9_k"), "q9_k"));
    of_rule("attn_q");
    of_rule("=q4_k");
    of_rule("attn_q=");
    of_rule("attn_(q=q4_k");
    CHECK(has(of_rule("ATTN_Q=q4_k"), "matches no matrix"));
    of_rule("attn_norm=q4_k");
    of_rule("ffn_gate_inp=q4_k");
    of_rule("attn_q=F8_E4M3");
    of_rule("attn_q=i32");
}

TEST_CASE("matrices below 8 bits are not encoded again without leave") {
    static const Source k_mix = open_source(testing::k_mix, Logger());
    TypeOptions options = recipe("Q4_K_M");
    const std::string why = refusal(options, k_mix);
    CHECK(has(why, "token_embd.weight"));
    CHECK(has(why, "IQ4_K"));
    options.allows_requantize = true;
    CHECK(types_of(options, k_mix).at("token_embd.weight") == q4_k);
    // Plain types add no error of their own.
    CHECK(types_of({.target = Target::plain, .plain_type = bf16}, k_mix).at("token_embd.weight") == bf16);
    refusal({.target = Target::plain, .plain_type = q8_0}, k_mix);
}

TEST_CASE("without a recipe nothing changes, and a folder gets types of its own") {
    for (const auto& [name, type] : types_of({})) {
        const auto tensor = std::ranges::find(tiny().tensors, name, &SourceTensor::name);
        CHECK(type == tensor->format);
    }
    const Source folder = open_source(testing::k_folder, Logger());
    const auto types = types_of({}, folder);
    CHECK(types.at("blk.0.attn_q.weight") == bf16);
    CHECK(types.at("blk.0.ffn_gate_inp.weight") == f32);
    CHECK(types.at("blk.0.attn_norm.weight") == f32);
}

}  // namespace minim::convert
