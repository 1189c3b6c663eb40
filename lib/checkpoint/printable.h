// SPDX-License-Identifier: Apache-2.0
// Names in model files may be any bytes. Messages and listings must be valid UTF-8 on one line, because calling
// programs decode them strictly.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace minim::checkpoint {

// Returns `text` in double quotes, with control characters and bytes that are not UTF-8 as \xNN, and quotes and
// backslashes escaped. Shows at most about `max_bytes` of it; "..." after the closing quote shows that it was cut.
std::string printable(std::string_view text, size_t max_bytes = 120);

// Returns a shape as text: "[256, 1536, 3072]".
std::string shape_text(std::span<const int64_t> shape);

}  // namespace minim::checkpoint
