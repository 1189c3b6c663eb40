// SPDX-License-Identifier: Apache-2.0
// Names of models and quantisations that are not supported, for error messages.
#pragma once

#include <string_view>

namespace minim::model {

// Describes a model by its architecture or model type: "MiniMax-M3 or M3.1, which has block-sparse attention". Empty
// if it is not one of MiniMax's other models.
std::string_view other_model(std::string_view name) noexcept;

// Describes a quantisation by its quant_method: "EXL3, the trellis-coded quantisation of ExLlamaV3". Empty if it is unknown.
std::string_view other_quantisation(std::string_view method) noexcept;

// Describes a quantisation by the name of a tensor in a safetensors folder. Empty for every supported name.
std::string_view quantisation_of_tensor(std::string_view name) noexcept;

}  // namespace minim::model
