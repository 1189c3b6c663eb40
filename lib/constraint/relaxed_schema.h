// SPDX-License-Identifier: Apache-2.0
// Removes keywords that cannot be enforced from a schema.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/json.h"

namespace minim::constraint {

// Removes as few keywords from `schema` as possible until `compile`, which throws unsupported for a schema that it
// cannot enforce, succeeds. Returns a line for each removed keyword with the reason; `where` is the schema's place,
// for these lines. The schema becomes `true` if removing keywords is not enough. Rethrows other exceptions of
// `compile`.
std::vector<std::string> relax(json::Value& schema, const std::function<void(const json::Value&)>& compile,
                               const std::string& where);

}  // namespace minim::constraint
