// SPDX-License-Identifier: Apache-2.0
// Recipes: the type of each tensor by the name of a quantised file, as Q4_K_M. Names of llama.cpp give the types of llama-quantize,
// names that only ik_llama.cpp has give its types, both for models with more than 8 experts and at least 4 query heads for a KV head.
// Every other type is a recipe too: all matrices that type, and the output matrix Q6_K.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "format/format.h"

namespace minim::convert {

// The role of a matrix, as recipes distinguish them.
enum class MatrixRole : uint8_t {
    token_embd,
    output,
    attn_q,
    attn_k,
    attn_v,
    attn_output,
    attn_qkv,     // Q, K and V in one tensor
    ffn_gate_up,  // ffn_gate_exps, ffn_up_exps, or both in one tensor
    ffn_down,
    // Of the feed-forward that every row takes, in M3: of a layer without experts, or the shared expert.
    dense_gate_up,
    dense_down,
    other,
};

struct Recipe {
    std::string name;        // in capitals, without alias: "Q4_K_M"
    Format type;             // of matrices without an exception
    uint32_t file_type = 0;  // general.file_type
};

// Returns a recipe by its name, in any case; nothing if there is no such recipe.
std::optional<Recipe> find_recipe(std::string_view name);

// Returns the recipe with a number of general.file_type; nothing if no recipe has it.
std::optional<Recipe> recipe_of_file_type(int64_t number);

// Returns the type of a matrix. `layer`: of a matrix outside of layers any. `with_importance`: importance data is given.
Format type_of(const Recipe& recipe, MatrixRole role, int64_t layer, int64_t n_layer, bool with_importance);

// Returns the role of a tensor by its name in GGUF files.
MatrixRole role_of(std::string_view name);

// Returns whether encoding a matrix of this role to this type needs importance data.
bool type_needs_importance(const Recipe& recipe, MatrixRole role, Format type);

// Returns the type for rows of `columns` numbers if they are no multiple of the block of `type`, else `type`.
Format type_for_columns(Format type, int64_t columns);

// Returns general.file_type of a file most of whose matrices have a type; nothing if no such number is known.
std::optional<uint32_t> file_type_of(Format type);

// Returns whether general.file_type may be `number` because of a matrix of this type with rows of `columns` numbers: the type is that of the
// number's recipe, or a file most of whose matrices have it gets the number. 28 stands for both IQ2_XS, of the recipe IQ2_S, and IQ2_S.
bool is_type_of_file(int64_t number, Format type, int64_t columns);

}  // namespace minim::convert
