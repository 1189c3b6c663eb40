// SPDX-License-Identifier: Apache-2.0
#include "convert/recipe.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <utility>

#include "model/tensor_names.h"

namespace minim::convert {
namespace {

using enum Format;

struct RecipeEntry {
    std::string_view name;
    Format type;
    uint32_t file_type;
};

// Names and numbers of general.file_type are those of llama.cpp, from 135 on those of ik_llama.cpp.
constexpr RecipeEntry k_recipes[] = {
    {"F32", f32, 0},          {"F16", f16, 1},         {"BF16", bf16, 32},        {"Q4_0", q4_0, 2},
    {"Q4_1", q4_1, 3},        {"Q5_0", q5_0, 8},       {"Q5_1", q5_1, 9},         {"Q8_0", q8_0, 7},
    {"Q2_K", q2_k, 10},       {"Q2_K_S", q2_k, 21},    {"Q3_K_S", q3_k, 11},      {"Q3_K_M", q3_k, 12},
    {"Q3_K_L", q3_k, 13},     {"Q4_K_S", q4_k, 14},    {"Q4_K_M", q4_k, 15},      {"Q5_K_S", q5_k, 16},
    {"Q5_K_M", q5_k, 17},     {"Q6_K", q6_k, 18},      {"IQ1_S", iq1_s, 24},      {"IQ1_M", iq1_m, 31},
    {"IQ2_XXS", iq2_xxs, 19}, {"IQ2_XS", iq2_xs, 20},  {"IQ2_S", iq2_xs, 28},     {"IQ2_M", iq2_s, 29},
    {"IQ3_XXS", iq3_xxs, 23}, {"IQ3_XS", iq3_s, 22},   {"IQ3_S", iq3_s, 26},      {"IQ3_M", iq3_s, 27},
    {"IQ4_NL", iq4_nl, 25},   {"IQ4_XS", iq4_xs, 30},  {"MXFP4_MOE", mxfp4, 38},  {"MXFP4", mxfp4, 38},
    {"NVFP4", nvfp4, 39},     {"Q6_0", q6_0, 135},     {"IQ2_K", iq2_k, 138},     {"IQ3_K", iq3_k, 139},
    {"IQ4_K", iq4_k, 140},    {"IQ5_K", iq5_k, 141},   {"IQ6_K", iq6_k, 142},     {"IQ4_KS", iq4_ks, 145},
    {"IQ3_KL", iq3_k, 146},   {"IQ2_KS", iq2_ks, 147}, {"IQ4_KSS", iq4_kss, 148}, {"IQ5_KS", iq5_ks, 150},
    {"IQ2_KT", iq2_kt, 151},  {"IQ3_KT", iq3_kt, 152}, {"IQ4_KT", iq4_kt, 153},   {"IQ3_KS", iq3_ks, 154},
    {"IQ2_KL", iq2_kl, 155},  {"IQ1_KT", iq1_kt, 156}};

constexpr std::pair<std::string_view, std::string_view> k_aliases[] = {
    {"Q3_K", "Q3_K_M"}, {"Q4_K", "Q4_K_M"}, {"Q5_K", "Q5_K_M"}};

// The layers in which an exception of an ik recipe applies.
enum class Where : uint8_t {
    all,
    more,   // the first and the last eighth, and every third layer between
    first,  // the first eighth
    layer0,
};

struct Exception {
    std::optional<Format> type = {};  // nothing: the recipe's own type
    Where where = Where::all;
};

// A recipe of ik_llama.cpp.
struct ForkRecipe {
    std::string_view name;
    Exception token_embd, output, attn_q, attn_k, attn_v, attn_output, ffn_gate_up, ffn_down;
};

constexpr Exception k_own = {};
constexpr ForkRecipe k_fork_recipes[] = {
    {"IQ2_K", k_own, {q5_k}, k_own, {q8_0}, {q8_0}, {q5_k}, k_own, k_own},
    {"IQ3_K", k_own, {q5_k}, k_own, {q8_0}, {q8_0}, {q5_k}, k_own, k_own},
    {"IQ3_KS", k_own, {q5_k}, k_own, {q8_0}, {q8_0}, {q5_k}, k_own, k_own},
    {"IQ2_KL", k_own, {q5_k}, k_own, {q8_0}, {q8_0}, {iq4_ks}, k_own, k_own},
    {"IQ3_KL",
     {iq3_k},
     {q6_k},
     {iq3_k},
     {q8_0},
     {q8_0},
     {q5_k},
     {iq4_ks, Where::more},
     {iq4_ks, Where::more}},
    {"IQ4_KSS", k_own, {q6_k}, k_own, {q8_0}, {q8_0}, {q5_k}, k_own, k_own},
    {"IQ4_KS", k_own, {q6_k}, k_own, {q8_0}, {q8_0}, {q5_k}, k_own, k_own},
    {"IQ4_K", k_own, {q6_k}, k_own, {q8_0}, {q8_0}, {q5_k}, k_own, k_own},
    {"IQ5_KS", k_own, {q6_k}, k_own, {q8_0}, {q8_0}, {q5_k}, k_own, k_own},
    {"IQ5_K", k_own, {q6_k}, k_own, {q8_0}, {q8_0}, k_own, k_own, k_own},
    {"IQ6_K", k_own, k_own, k_own, {q8_0}, {q8_0}, k_own, k_own, k_own},
    {"IQ2_KS", k_own, {q5_k}, {q4_k}, {q4_k}, {iq4_k}, {q5_k}, k_own, {q2_k, Where::first}},
    {"IQ2_KT", k_own, {q5_k}, {q4_k}, {q4_k}, {iq4_k}, {q5_k}, {iq3_k, Where::layer0}, {iq3_k, Where::first}},
    {"IQ3_KT", {iq3_s}, {q5_k}, k_own, {q8_0}, {q8_0}, {q5_k}, k_own, k_own},
    {"IQ4_KT", k_own, {q6_k}, k_own, {q8_0}, {q8_0}, k_own, k_own, k_own},
};

bool is_one_of(std::string_view name, std::initializer_list<std::string_view> names) {
    return std::ranges::find(names, name) != names.end();
}

std::string in_capitals(std::string_view text) {
    std::string capitals(text);
    for (char& c : capitals)
        if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
    return capitals;
}

// Where a layer is in the model. Quantisers keep more bits in the first and last layers.
struct Depth {
    int64_t layer;
    int64_t n_layer;

    bool is_first() const { return layer < n_layer / 8; }
    bool is_middle() const { return !is_first() && layer < 7 * n_layer / 8; }
    bool is_more() const { return !is_middle() || (layer - n_layer / 8) % 3 == 2; }
};

Format of_fork(const ForkRecipe& fork, Format own, MatrixRole role, const Depth& depth) {
    const auto exception = [&]() -> Exception {
        switch (role) {
            case MatrixRole::token_embd:
                return fork.token_embd;
            case MatrixRole::output:
                return fork.output;
            case MatrixRole::attn_q:
                return fork.attn_q;
            case MatrixRole::attn_k:
                return fork.attn_k;
            case MatrixRole::attn_v:
            case MatrixRole::attn_qkv:
                return fork.attn_v;
            case MatrixRole::attn_output:
                return fork.attn_output;
            case MatrixRole::ffn_gate_up:
            case MatrixRole::dense_gate_up:
                return fork.ffn_gate_up;
            case MatrixRole::ffn_down:
            case MatrixRole::dense_down:
                return fork.ffn_down;
            case MatrixRole::other:
                break;
        }
        return {};
    }();
    const bool applies = exception.where == Where::all ||
                         (exception.where == Where::more && depth.is_more()) ||
                         (exception.where == Where::first && depth.is_first()) ||
                         (exception.where == Where::layer0 && depth.layer == 0);
    return exception.type && applies ? *exception.type : own;
}

// The recipes below about 3 bits.
Format of_low_bits(std::string_view name, Format own, MatrixRole role, const Depth& depth) {
    const bool is_wide = is_one_of(name, {"IQ2_S", "IQ2_M"});
    if (role == MatrixRole::attn_v || role == MatrixRole::attn_qkv) return q4_k;
    if ((role == MatrixRole::ffn_down || role == MatrixRole::dense_down) && depth.is_first())
        return is_wide ? iq3_s : q2_k;
    if (role == MatrixRole::attn_output) {
        if (is_one_of(name, {"IQ1_S", "IQ1_M"})) return iq2_xxs;
        return is_wide ? iq3_s : own;
    }
    return own;
}

Format of_values(std::string_view name, Format own, const Depth& depth) {
    if (is_one_of(name, {"Q2_K", "Q2_K_S", "IQ3_XXS", "IQ3_XS", "IQ3_S", "IQ3_M"})) return q4_k;
    if (name == "Q3_K_M") return depth.layer < 2 ? q5_k : q4_k;
    if (is_one_of(name, {"Q3_K_L", "IQ4_NL", "IQ4_XS"})) return q5_k;
    if (is_one_of(name, {"Q4_K_M", "Q5_K_M"}) && depth.is_more()) return q6_k;
    if (name == "Q4_K_S" && depth.layer < 4) return q5_k;
    return own;
}

Format of_joined_attention(std::string_view name, Format own) {
    if (is_one_of(name, {"Q3_K_M", "Q3_K_L", "IQ3_M"})) return q4_k;
    if (name == "Q4_K_M") return q5_k;
    if (name == "Q5_K_M") return q6_k;
    return own;
}

Format of_attention_output(std::string_view name, Format own) {
    if (name == "Q2_K") return q3_k;
    if (name == "IQ3_XXS") return iq3_s;
    if (is_one_of(name, {"Q3_K_M", "IQ3_M"})) return q4_k;
    if (name == "Q3_K_L") return q5_k;
    return own;
}

Format of_down(std::string_view name, Format own, const Depth& depth, bool with_importance) {
    if (name == "Q2_K") return q3_k;
    if (name == "Q3_K_M") return depth.layer < depth.n_layer / 16 ? q5_k : q4_k;
    if (name == "Q3_K_L") return q5_k;
    if (is_one_of(name, {"Q4_K_M", "Q5_K_M"})) return depth.is_more() ? q6_k : own;
    if (!depth.is_first()) return own;
    if (is_one_of(name, {"Q2_K_S", "IQ3_M"})) return q4_k;
    if (name == "Q4_K_S") return q5_k;
    if (is_one_of(name, {"IQ4_NL", "IQ4_XS"})) return with_importance ? own : q5_k;
    if (name == "Q4_0" && with_importance) return q4_1;
    if (name == "Q5_0" && with_importance) return q5_1;
    return own;
}

}  // namespace

std::optional<Recipe> find_recipe(std::string_view name) {
    std::string wanted = in_capitals(name);
    for (const auto& [alias, meant] : k_aliases)
        if (wanted == alias) wanted = meant;
    for (const RecipeEntry& entry : k_recipes)
        if (entry.name == wanted) return Recipe{std::move(wanted), entry.type, entry.file_type};
    return std::nullopt;
}

std::optional<Recipe> recipe_of_file_type(int64_t number) {
    const auto* entry = std::ranges::find(k_recipes, number, &RecipeEntry::file_type);
    if (entry == std::end(k_recipes)) return std::nullopt;
    return Recipe{std::string(entry->name), entry->type, entry->file_type};
}

Format type_of(const Recipe& recipe, MatrixRole role, int64_t layer, int64_t n_layer, bool with_importance) {
    const std::string_view name = recipe.name;
    const Format own = recipe.type;
    if (is_one_of(name, {"F32", "F16", "BF16"})) return own;
    const Depth depth = {layer, n_layer};
    for (const ForkRecipe& fork : k_fork_recipes)
        if (fork.name == name) return of_fork(fork, own, role, depth);
    const bool is_ffn = role == MatrixRole::ffn_gate_up || role == MatrixRole::ffn_down;
    if (name == "MXFP4_MOE") return is_ffn ? mxfp4 : q8_0;
    const bool is_low = is_one_of(name, {"IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ2_M"});
    if (role == MatrixRole::output) {
        if (is_low || name == "IQ3_XXS") return q5_k;
        return own == q8_0 ? own : q6_k;
    }
    if (role == MatrixRole::token_embd) {
        if (is_one_of(name, {"IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS"})) return q2_k;
        return is_one_of(name, {"IQ2_S", "IQ2_M", "IQ3_XXS"}) ? iq3_s : own;
    }
    if (is_low) return of_low_bits(name, own, role, depth);
    switch (role) {
        case MatrixRole::attn_v:
            return of_values(name, own, depth);
        case MatrixRole::attn_qkv:
            return of_joined_attention(name, own);
        case MatrixRole::attn_q:
        case MatrixRole::attn_k:
            return name == "IQ3_XS" ? iq3_xxs : name == "IQ3_XXS" ? iq2_s : own;
        case MatrixRole::attn_output:
            return of_attention_output(name, own);
        case MatrixRole::ffn_down:
        case MatrixRole::dense_down:
            return of_down(name, own, depth, with_importance);
        case MatrixRole::ffn_gate_up:
        case MatrixRole::dense_gate_up:
            return name == "IQ3_XS" && depth.is_middle() ? iq3_xxs : own;
        case MatrixRole::token_embd:
        case MatrixRole::output:
        case MatrixRole::other:
            break;
    }
    return own;
}

MatrixRole role_of(std::string_view name) {
    if (name == "token_embd.weight") return MatrixRole::token_embd;
    if (name == "output.weight") return MatrixRole::output;
    if (model::names::layer_of(name) < 0) return MatrixRole::other;
    constexpr std::pair<std::string_view, MatrixRole> k_endings[] = {
        {".attn_q.weight", MatrixRole::attn_q},
        {".attn_k.weight", MatrixRole::attn_k},
        {".attn_v.weight", MatrixRole::attn_v},
        {".attn_output.weight", MatrixRole::attn_output},
        {".attn_qkv.weight", MatrixRole::attn_qkv},
        {".ffn_gate_exps.weight", MatrixRole::ffn_gate_up},
        {".ffn_up_exps.weight", MatrixRole::ffn_gate_up},
        {".ffn_gate_up_exps.weight", MatrixRole::ffn_gate_up},
        {".ffn_down_exps.weight", MatrixRole::ffn_down},
        {".ffn_gate_shexp.weight", MatrixRole::dense_gate_up},
        {".ffn_up_shexp.weight", MatrixRole::dense_gate_up},
        {".ffn_down_shexp.weight", MatrixRole::dense_down},
        {".ffn_gate.weight", MatrixRole::dense_gate_up},
        {".ffn_up.weight", MatrixRole::dense_gate_up},
        {".ffn_down.weight", MatrixRole::dense_down},
    };
    for (const auto& [ending, role] : k_endings)
        if (name.ends_with(ending)) return role;
    return MatrixRole::other;
}

bool type_needs_importance(const Recipe& recipe, MatrixRole role, Format type) {
    if (role == MatrixRole::token_embd || role == MatrixRole::output) return false;
    switch (type) {
        case iq1_s:
        case iq1_m:
        case iq2_xxs:
        case iq2_xs:
        case iq2_s:
        case iq3_xxs:
            return true;
        case q2_k:
            return recipe.name == "Q2_K_S";
        default:
            return false;
    }
}

Format type_for_columns(Format type, int64_t columns) {
    const auto fits = [&](Format format) { return columns % traits(format).block_elems == 0; };
    if (fits(type)) return type;
    const auto smaller_blocks = [&] {
        switch (type) {
            case q2_k:
            case q3_k:
                return q4_0;
            case q4_k:
                return q5_0;
            case q5_k:
                return q5_1;
            case q6_k:
            case iq6_k:
                return q8_0;
            case iq5_k:
            case iq5_ks:
                return q6_0;
            default:
                return iq4_nl;
        }
    }();
    return fits(smaller_blocks) ? smaller_blocks : f16;
}

std::optional<uint32_t> file_type_of(Format type) {
    constexpr std::pair<Format, uint32_t> k_types[] = {{q3_k, 12},   {q4_k, 15},  {q5_k, 17},
                                                       {iq2_xs, 20}, {iq2_s, 28}, {iq3_s, 26}};
    for (const auto& [format, number] : k_types)
        if (format == type) return number;
    for (const RecipeEntry& entry : k_recipes)
        if (entry.type == type) return entry.file_type;
    return std::nullopt;
}

bool is_type_of_file(int64_t number, Format type, int64_t columns) {
    const auto recipe = recipe_of_file_type(number);
    return (recipe && type_for_columns(recipe->type, columns) == type) || file_type_of(type) == number;
}

}  // namespace minim::convert
