// SPDX-License-Identifier: Apache-2.0
#include "convert/recipe.h"

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "support/catch.h"
#include "support/files.h"

namespace minim::convert {
namespace {

using nlohmann::json;

// What llama-quantize and ik_llama.cpp choose, for models of 62, 3, 49 and 30 layers.
const json& table() {
    static const json k_table = json::parse(test::text_of(MINIM_TEST_DATA "/convert/recipes.json"));
    return k_table;
}

std::string type_name(const Recipe& recipe, MatrixRole role, int64_t layer, int64_t n_layer,
                      bool with_importance) {
    return std::string(traits(type_of(recipe, role, layer, n_layer, with_importance)).name);
}

}  // namespace

TEST_CASE("every recipe has the types of the table in every layer") {
    constexpr std::pair<const char*, MatrixRole> k_roles[] = {{"attn_q", MatrixRole::attn_q},
                                                              {"attn_k", MatrixRole::attn_k},
                                                              {"attn_v", MatrixRole::attn_v},
                                                              {"attn_output", MatrixRole::attn_output},
                                                              {"ffn_gate_exps", MatrixRole::ffn_gate_up},
                                                              {"ffn_up_exps", MatrixRole::ffn_gate_up},
                                                              {"ffn_down_exps", MatrixRole::ffn_down}};
    const std::string without = " without importance data";
    int64_t n_recipes = 0;
    for (const json& model : table()["models"]) {
        const auto n_layer = model["layers"].get<int64_t>();
        for (const auto& [key, expected] : model["recipes"].items()) {
            const bool with_importance = !key.ends_with(without);
            const std::string name = with_importance ? key : key.substr(0, key.size() - without.size());
            CAPTURE(n_layer, key);
            const auto recipe = find_recipe(name);
            REQUIRE(recipe);
            CHECK(type_name(*recipe, MatrixRole::token_embd, 0, n_layer, with_importance) ==
                  expected["token_embd"]);
            CHECK(type_name(*recipe, MatrixRole::output, 0, n_layer, with_importance) == expected["output"]);
            for (const auto& [role_name, role] : k_roles) {
                for (const json& run : expected[role_name])
                    for (auto layer = run[1].get<int64_t>(); layer <= run[2].get<int64_t>(); ++layer) {
                        CAPTURE(role_name, layer);
                        CHECK(type_name(*recipe, role, layer, n_layer, with_importance) == run[0]);
                    }
            }
            ++n_recipes;
        }
    }
    CHECK(n_recipes == 4 * 47);
}

TEST_CASE("every name of the table has its number of general.file_type") {
    for (const auto& [name, number] : table()["file_type"].items()) {
        CAPTURE(name);
        const auto recipe = find_recipe(name);
        REQUIRE(recipe);
        CHECK(recipe->file_type == number.get<uint32_t>());
    }
    for (const auto& [alias, name] : table()["alias"].items()) CHECK(find_recipe(alias)->name == name);
    CHECK(find_recipe("iq2_m")->name == "IQ2_M");
    CHECK_FALSE(find_recipe("Q9_K"));
    CHECK_FALSE(find_recipe(""));
}

TEST_CASE("the number of a file fits the types that recipes and single types give it") {
    for (const FormatTraits& format : all_formats()) {
        CAPTURE(format.name);
        if (const auto number = file_type_of(format.format))
            CHECK(is_type_of_file(*number, format.format, 3072));
    }
    for (const auto& [name, number] : table()["file_type"].items()) {
        CAPTURE(name);
        CHECK(is_type_of_file(number.get<int64_t>(), find_recipe(name)->type, 3072));
    }
    // 28 is a file of the recipe IQ2_S, whose matrices are IQ2_XS, or one with matrices of IQ2_S.
    CHECK(is_type_of_file(28, Format::iq2_xs, 256));
    CHECK(is_type_of_file(28, Format::iq2_s, 256));
    CHECK_FALSE(is_type_of_file(28, Format::iq2_xxs, 256));
    CHECK_FALSE(is_type_of_file(20, Format::iq2_s, 256));
    CHECK(is_type_of_file(15, Format::q5_0, 96));  // in place of Q4_K, whose blocks do not divide 96
    CHECK_FALSE(is_type_of_file(15, Format::q5_0, 256));
    CHECK_FALSE(is_type_of_file(1000, Format::q8_0, 256));
}

TEST_CASE("types that need importance data are those of the table, but for embedding and output") {
    const Recipe plain = {"Q8_0", Format::q8_0};
    std::vector<std::string> needing;
    for (const FormatTraits& format : all_formats()) {
        if (type_needs_importance(plain, MatrixRole::ffn_down, format.format))
            needing.emplace_back(format.name);
        CHECK_FALSE(type_needs_importance(plain, MatrixRole::output, format.format));
        CHECK_FALSE(type_needs_importance(plain, MatrixRole::token_embd, format.format));
    }
    std::ranges::sort(needing);
    CHECK(needing == table()["needs_importance"].get<std::vector<std::string>>());
    CHECK(type_needs_importance({"Q2_K_S", Format::q2_k}, MatrixRole::attn_q, Format::q2_k));
}

TEST_CASE("rows that are no multiple of a block get a type with smaller blocks") {
    using enum Format;
    const auto at_96 = [](Format type) { return type_for_columns(type, 96); };
    CHECK(type_for_columns(q4_k, 256) == q4_k);
    for (const Format type :
         {iq1_s, iq1_m, iq2_xxs, iq2_xs, iq2_s, iq3_xxs, iq3_s, iq4_xs, iq2_k, iq4_k, iq2_ks, iq4_kss})
        CHECK(at_96(type) == iq4_nl);
    for (const Format type : {q2_k, q3_k}) CHECK(at_96(type) == q4_0);
    CHECK(at_96(q4_k) == q5_0);
    CHECK(at_96(q5_k) == q5_1);
    CHECK(at_96(q6_k) == q8_0);
    CHECK(at_96(iq5_k) == q6_0);
    CHECK(at_96(iq5_ks) == q6_0);
    CHECK(at_96(iq6_k) == q8_0);
    CHECK(at_96(q8_0) == q8_0);
    CHECK(type_for_columns(q4_k, 40) == f16);
    CHECK(type_for_columns(bf16, 40) == bf16);
}

TEST_CASE("the role of a matrix is in its name") {
    CHECK(role_of("token_embd.weight") == MatrixRole::token_embd);
    CHECK(role_of("output.weight") == MatrixRole::output);
    CHECK(role_of("blk.61.ffn_down_exps.weight") == MatrixRole::ffn_down);
    CHECK(role_of("blk.0.ffn_gate_up_exps.weight") == MatrixRole::ffn_gate_up);
    CHECK(role_of("blk.0.attn_qkv.weight") == MatrixRole::attn_qkv);
    CHECK(role_of("blk.0.attn_output.bias") == MatrixRole::other);
    CHECK(role_of("ffn_down_exps.weight") == MatrixRole::other);
}

}  // namespace minim::convert
