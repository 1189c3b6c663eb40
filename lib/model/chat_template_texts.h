// SPDX-License-Identifier: Apache-2.0
// The chat templates of a checkpoint as text, for copies of it.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "checkpoint/checkpoint.h"

namespace minim::model {

// Returns names and texts. The template that is used unless a request says otherwise is called "default".
std::vector<std::pair<std::string, std::string>> chat_template_texts(
    const checkpoint::Checkpoint& checkpoint);

}  // namespace minim::model
