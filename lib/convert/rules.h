// SPDX-License-Identifier: Apache-2.0
// Chooses the type of each tensor of the output: a recipe, and rules that a user gives.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "convert/recipe.h"
#include "convert/source.h"
#include "format/format.h"

namespace minim::convert {

// What becomes of the matrices.
enum class Target : uint8_t {
    keep,    // each stays in its own type if GGUF has it, else BF16
    plain,   // all get one type
    recipe,  // they are quantised
};

struct TypeOptions {
    Target target = Target::keep;
    Format plain_type = Format::bf16;  // of Target::plain
    std::optional<Recipe> recipe = {};
    // "PATTERN=TYPE": a regular expression that is searched in the GGUF names of tensors; the first one that matches decides.
    std::vector<std::string> rules = {};
    std::optional<Format> output_type = {};     // of output.weight; before the rules
    std::optional<Format> embedding_type = {};  // of token_embd.weight; before the rules
    bool keeps_output = false;                  // output.weight stays in its own type
    bool is_pure = false;                       // without the exceptions of the recipe
    bool allows_requantize = false;             // also matrices below 8 bits are encoded again
};

struct ChosenType {
    Format type = Format::f32;
    bool is_fallback = false;  // the type that was asked for has blocks that do not divide the rows
    bool is_widened = false;   // GGUF has no type that holds the numbers: BF16
};

// Returns a type by its name, in any case. Throws invalid, naming `what`, for one that GGUF does not have or that holds no weights.
Format parse_type(std::string_view name, std::string_view what);

// Returns whether a tensor keeps its bytes if it gets this type.
bool is_copied(const SourceTensor& tensor, Format type, bool is_gguf);

// Returns the type of each tensor. Throws invalid for a rule that cannot be understood or matches no tensor that it could apply to, and
// for a matrix below 8 bits that would be encoded again, naming it.
std::vector<ChosenType> choose_types(const TypeOptions& options, std::span<const SourceTensor> tensors,
                                     bool is_gguf, int64_t n_layer, bool with_importance);

}  // namespace minim::convert
