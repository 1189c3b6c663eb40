// SPDX-License-Identifier: Apache-2.0
// The log of the server: notes, and one line per request, without any of the request's text.
#pragma once

#include <string>
#include <string_view>

namespace server {

// Sets the file for later lines. "" is standard error. Throws std::runtime_error if the file cannot be opened.
void open_log(const std::string& file);

// Writes "minim-server: LINE". Any thread. Never waits: a line that a full pipe does not take is lost.
void write_note(std::string_view line);

}  // namespace server
