// SPDX-License-Identifier: Apache-2.0
// Text to standard output and standard error. A write to standard output that fails (a closed pipe, a full
// disk) is an error like any other: it ends the program instead of going unnoticed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace cli {

// Both throw minim::Exception with status IO.
void print(std::string_view text);
void flush_output();

// Prints to standard error. Failures to write there are ignored.
void print_note(std::string_view text);

// Names and values from files as one safe line: control characters become escapes, a long text is cut and its
// size told.
std::string printable(std::string_view text, size_t max_bytes = SIZE_MAX);

}  // namespace cli
