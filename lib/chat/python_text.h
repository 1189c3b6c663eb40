// SPDX-License-Identifier: Apache-2.0
// The chat template runs in Python, so values in a prompt look as Python prints them: str() where the
// template prints a value, json.dumps(ensure_ascii=False) where it applies `tojson` (the filter as Hugging
// Face defines it).
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"

namespace minim::chat {

// repr(float): the shortest digits that read back the same; 1.0, 1e-05, 1e+16, inf, -inf, nan.
std::string python_float(double value);

// repr(str): quoted, with escapes for quotes, backslashes and what is not printable.
std::string python_repr(std::string_view utf8);

// str(value): a string as it is, None, True, False, a list or dict with repr() of what is in it.
std::string python_str(const json::Value& value);

// json.dumps(value, ensure_ascii=False): separators ", " and ": ".
std::string python_json(const json::Value& value);

// Python's truth value: absent (nullptr), null, false, zero and empty things are false.
bool is_true(const json::Value* value) noexcept;

}  // namespace minim::chat
