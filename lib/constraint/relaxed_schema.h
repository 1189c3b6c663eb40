// A schema without the keywords that cannot be enforced.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/json.h"

namespace minim::constraint {

// Leaves out of `schema` as few keywords as it takes for `compile`, which throws unsupported for a schema that it cannot
// enforce, and returns what it left out and why, one line each. `where` is the schema's place, for these lines. The schema
// becomes `true` if it cannot be enforced without all these keywords either. Throws whatever else `compile` throws.
std::vector<std::string> relax(json::Value& schema, const std::function<void(const json::Value&)>& compile,
                               const std::string& where);

}  // namespace minim::constraint
