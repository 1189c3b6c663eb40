// Models and quantised folders that are not read, by the names that their files give them: what an error says of them.
#pragma once

#include <string_view>

namespace minim::model {

// What a model is whose architecture or model type has this name: "MiniMax-M3 or M3.1, which has block-sparse attention". Empty if
// it is none of MiniMax's other models.
std::string_view other_model(std::string_view name) noexcept;

// The quantisation that a quant_method stands for: "EXL3, the trellis-coded quantisation of ExLlamaV3". Empty if it is not known.
std::string_view other_quantisation(std::string_view method) noexcept;

// The quantisation that a tensor's name in a safetensors folder tells of, as above. Empty for every name that is read here.
std::string_view quantisation_of_tensor(std::string_view name) noexcept;

}  // namespace minim::model
