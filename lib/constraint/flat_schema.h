// Flat schemas: what a value of each type must be, without references and combinations. They hold keywords of JSON Schema,
// and these, which are made on the way:
//   patterns, formats, divisors      lists, of `pattern`, `format` and `multipleOf`: all hold
//   !patterns, !formats, !divisors   lists: none holds
//   !values                          a list: the value is none of these
//   !integer                         true: a number is no integer
//   contains                         a list of {schema, least, most} (most may be missing)
//   seen                             {names, all_names, n_items, all_items, items}: what unevaluatedProperties and
//                                    unevaluatedItems leave alone; only where a schema has one of them
#pragma once

#include <optional>
#include <string>

#include "base/json.h"
#include "constraint/schema_check.h"

namespace minim::constraint {

// Throws invalid for a keyword that has no value it can have.
void check_keywords(const json::Value& schema, const std::string& where);

// What the schema's own keywords say. Throws unsupported for a keyword that cannot be enforced.
json::Value flat_keywords(const json::Value& schema, const std::string& where, bool tracks_seen);

// What fits both; nothing if no value can.
std::optional<json::Value> merged(const json::Value& a, const json::Value& b, SchemaCheck& check,
                                  const std::string& where);

// What is left of a flat schema for members and items that its keywords have not seen.
void close_properties(json::Value& flat, const json::Value& rest);
void close_items(json::Value& flat, const json::Value& rest);

// Of all JSON types, those that a type list or name leaves out: "integer" leaves out numbers only in part, which is
// `has_fractions`.
json::Value other_types(const json::Value& types, bool& has_fractions);

}  // namespace minim::constraint
