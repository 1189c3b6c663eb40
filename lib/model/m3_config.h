// SPDX-License-Identifier: Apache-2.0
// The configuration of MiniMax-M3's language model, from either container. A config.json has the spelling of the published files or
// that of transformers 5; if it has both, they must agree.
#pragma once

#include "backend/experts.h"
#include "base/json.h"
#include "base/log.h"
#include "checkpoint/metadata.h"
#include "model/config.h"

namespace minim::model {

// Of the released model. GGUF has no keys for them.
inline constexpr backend::Activation k_m3_activation = {.alpha = 1.702F, .limit = 7.0F};

Config m3_config(const json::Value& object, const Logger& log);
Config m3_config(const checkpoint::Metadata& metadata, const Logger& log);

}  // namespace minim::model
