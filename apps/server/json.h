// SPDX-License-Identifier: Apache-2.0
// JSON that keeps the order of keys, as prompts need.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace server {

using Json = nlohmann::ordered_json;

// Returns compact JSON; bytes that are not UTF-8 become U+FFFD.
std::string to_text(const Json& value);

// Returns a call of a tool in OpenAI's form: {"id", "type": "function", "function": {"name", "arguments"}}; without an empty id.
Json call_json(const std::string& id, const std::string& name, Json arguments);

// Returns an event of a stream: its type and its data.
std::string event_text(const char* type, const Json& data);

// Parses the body of a request, which must be an object. Throws ApiError for anything that is not strict JSON in UTF-8. Also
// throws beyond limits on nesting, members of an object and values, which keep the work in proportion to the length.
Json parse_body(std::string_view text);

// The same, but keeps only the members of these names.
Json parse_members(std::string_view text, std::initializer_list<std::string_view> names);

}  // namespace server
