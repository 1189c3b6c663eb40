// SPDX-License-Identifier: Apache-2.0
// The configuration of MiniMax-M2, from either container.
#pragma once

#include "base/json.h"
#include "base/log.h"
#include "checkpoint/metadata.h"
#include "model/config.h"

namespace minim::model {

Config m2_config(const json::Value& object);
Config m2_config(const checkpoint::Metadata& metadata, const Logger& log);

}  // namespace minim::model
