// SPDX-License-Identifier: Apache-2.0
// Converts the arrays of a schema to a grammar.
#pragma once

#include <string>

#include "base/json.h"
#include "constraint/json_text.h"

namespace minim::constraint {

class JsonSchema;

// Returns the arrays that a flat schema for arrays accepts.
Part json_array(JsonSchema& json, JsonText& text, const json::Value& flat, const std::string& where);

}  // namespace minim::constraint
