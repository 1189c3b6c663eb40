// SPDX-License-Identifier: Apache-2.0
// Files of JSON lines: one object a line, empty lines between them.
#pragma once

#include <functional>
#include <string>

#include <nlohmann/json.hpp>

namespace cli {

// Calls use(object, place) for each line; `place` names file and line for messages. Throws minim::Exception: NOT_FOUND or IO if the file
// cannot be read, and INVALID, naming the line, if it is no object or use() finds a member missing or of another type.
void for_each_json_line(const std::string& path,
                        const std::function<void(const nlohmann::json& line, const std::string& place)>& use);

}  // namespace cli
