// SPDX-License-Identifier: Apache-2.0
// Resolves references of a schema by name or URI ($id, $anchor) to places in it.
#pragma once

#include "base/json.h"

namespace minim::constraint {

// Returns the schema with every $ref into it as a JSON pointer from its root: "#/$defs/a". References to other
// documents stay as they are. $dynamicRef and $recursiveRef become $ref if they have only one possible target.
json::Value with_local_references(const json::Value& root);

}  // namespace minim::constraint
