// SPDX-License-Identifier: Apache-2.0
// JSON that keeps the order of keys, as prompts need.
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace server {

using Json = nlohmann::ordered_json;

// Compact; bytes that are not UTF-8 become U+FFFD.
std::string to_text(const Json& value);

// Appends `text` in quotes, with escapes; fast, for streams.
void append_quoted(std::string& out, std::string_view text);

// The body of a request, which must be an object. Throws ApiError for anything that is not strict JSON in UTF-8, and beyond
// limits that keep the work in proportion to the length: nesting, members of an object, values.
Json parse_body(std::string_view text);

}  // namespace server
