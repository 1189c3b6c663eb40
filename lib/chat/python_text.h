// SPDX-License-Identifier: Apache-2.0
// The chat template runs in Python, so values in a prompt look as Python prints them (jinja::to_text and jinja::to_json).
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"

namespace minim::chat {

// repr(float): the shortest digits that read back the same; 1.0, 1e-05, 1e+16, inf, -inf, nan.
std::string python_float(double value);

// repr(str): quoted, with escapes for quotes, backslashes and what is not printable.
std::string python_repr(std::string_view utf8);

// Python's truth value: absent (nullptr), null, false, zero and empty things are false.
bool is_true(const json::Value* value) noexcept;

}  // namespace minim::chat
