// SPDX-License-Identifier: Apache-2.0
// Writes text to standard output and standard error. If a write to standard output fails, as on a full disk, that is an error like any
// other, and ends the program. If nobody reads it any more, as behind `| head`, the program ends without a message.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace cli {

// Standard output is a pipe or socket whose reader has ended.
struct OutputClosed {};

// Both throw OutputClosed, or minim::Exception with status IO.
void print(std::string_view text);
void flush_output();

// Writes a whole file, in place of one that is there. Throws minim::Exception with status IO.
void write_file(const std::string& path, std::string_view text);

// Throws minim::Exception if an output cannot be written, or is one of the files that are read: a model would be lost. Empty paths are
// passed over.
void check_outputs(const std::vector<std::string>& outputs, const std::vector<std::string>& inputs);

// Makes standard error write to a file, at its end. "" changes nothing. Throws minim::Exception with status IO.
void open_log(const std::string& path);

// Prints to standard error. Failures to write there are ignored.
void print_note(std::string_view text);

// Returns a name or value from a file as one safe line: control characters become escapes, and a long text is cut, with its
// size behind it.
std::string printable(std::string_view text, size_t max_bytes = SIZE_MAX);

}  // namespace cli
