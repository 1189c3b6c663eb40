// SPDX-License-Identifier: Apache-2.0
// The log of the server: one line per request, without any text of it, and notes.
#pragma once

#include <string>
#include <string_view>

namespace server {

// Sets the file for later lines. "" is standard error. Throws std::runtime_error if the file cannot be opened.
void open_log(const std::string& file);

// "minim-server: LINE". Any thread. Never waits: a line that a full pipe does not take is lost.
void write_note(std::string_view line);

}  // namespace server
