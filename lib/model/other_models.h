// SPDX-License-Identifier: Apache-2.0
// Names of models that are not supported, for error messages.
#pragma once

#include <string_view>

namespace minim::model {

// Describes a model by its architecture or model type: "MiniMax-M1, which has linear attention". Empty
// if it is not one of MiniMax's other models.
std::string_view other_model(std::string_view name) noexcept;

}  // namespace minim::model
