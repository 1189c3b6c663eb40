// SPDX-License-Identifier: Apache-2.0
// The relations between values that every configuration must satisfy.
#pragma once

#include "model/config.h"

namespace minim::model {

// Throws format with reason value, naming the figure.
void check_config(const Config& config);

}  // namespace minim::model
