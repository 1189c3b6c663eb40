// SPDX-License-Identifier: Apache-2.0
// Arrays as grammar.
#pragma once

#include <string>

#include "base/json.h"
#include "constraint/json_text.h"

namespace minim::constraint {

class JsonSchema;

// Those of a flat schema for arrays.
Part json_array(JsonSchema& json, JsonText& text, const json::Value& flat, const std::string& where);

}  // namespace minim::constraint
