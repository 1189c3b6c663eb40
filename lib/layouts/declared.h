// SPDX-License-Identifier: Apache-2.0
// What the files of a quantised folder declare about its weights. The tensors show most of it themselves; they must agree
// with each declaration, and the declarations with each other.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace minim::layouts {

// How numbers are quantised.
enum class Method : uint8_t { fp8, mxfp8, nvfp4, mxfp4, integers };

// The quantisation that one file of a folder declares.
struct Declaration {
    struct Entry {
        Method method;
        int64_t group = 0;  // inputs that share a scale; 0: not said
        std::string text;   // "quant_algo NVFP4, group_size 16"
    };
    std::string file;                      // "hf_quant_config.json"
    std::vector<Entry> entries;            // each matrix is quantised by one of these; empty: not declared
    std::map<std::string, Entry> modules;  // of single matrices, by their name without ".weight"
};

// Properties of packed weights that config.json declares and the tensors do not show.
struct PackingHints {
    int32_t gptq_zero_bias = 1;     // added to the zero points of GPTQ's tensors
    bool orders_inputs = false;     // inputs may be in groups by activation: g_idx is not trivial
    std::optional<bool> symmetric;  // whether all groups are symmetric; nothing: not declared for all
    struct Group {
        int64_t bits = 0;
        int64_t size = 0;  // inputs; -1: all of a row
    };
    std::vector<Group> groups;              // all declared groups of integers; empty: none is declared
    std::string text;                       // of the declaration, for messages
    std::vector<Declaration> declarations;  // of all files: the tensors must agree with each
};

// Adds what hf_quant_config.json declares. Throws format if it is not a JSON object or contradicts config.json.
void add_hf_quant_config(std::string_view text, PackingHints& hints);

// Describes a quantisation by its quant_method: "EXL3, the trellis-coded quantisation of ExLlamaV3". Empty if it is unknown.
std::string_view other_quantisation(std::string_view method) noexcept;

// Describes a quantisation by the name of a tensor in a safetensors folder. Empty for every supported name.
std::string_view quantisation_of_tensor(std::string_view name) noexcept;

}  // namespace minim::layouts
