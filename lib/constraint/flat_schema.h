// SPDX-License-Identifier: Apache-2.0
// Flat schemas: conditions on a value of each type, without references and combinations. They have keywords of JSON
// Schema, and these internal ones:
//   patterns, formats, divisors      lists, of `pattern`, `format` and `multipleOf`: all hold
//   !patterns, !formats, !divisors   lists: none holds
//   !values                          a list: the value is none of these
//   !integer                         true: a number is not an integer
//   contains                         a list of {schema, least, most} (most may be missing)
//   seen                             {names, all_names, n_items, all_items, items}: the members and items to which
//                                    unevaluatedProperties and unevaluatedItems do not apply; only if a schema has one of them
#pragma once

#include <optional>
#include <string>

#include "base/json.h"
#include "constraint/schema_check.h"

namespace minim::constraint {

// Throws invalid for a keyword with an impossible value.
void check_keywords(const json::Value& schema, const std::string& where);

// Returns the conditions of the schema's own keywords. Throws unsupported for a keyword that cannot be enforced.
json::Value flat_keywords(const json::Value& schema, const std::string& where, bool tracks_seen);

// Returns the conditions of both; nothing if no value can fit both.
std::optional<json::Value> merged(const json::Value& a, const json::Value& b, SchemaCheck& check,
                                  const std::string& where);

// Applies unevaluatedProperties and unevaluatedItems to the members and items that other keywords have not seen.
void close_properties(json::Value& flat, const json::Value& rest);
void close_items(json::Value& flat, const json::Value& rest);

// Returns the JSON types that a type name or list of names leaves out. Sets `has_fractions` if numbers are left out
// only in part, namely those with a fraction ("integer" without "number").
json::Value other_types(const json::Value& types, bool& has_fractions);

}  // namespace minim::constraint
