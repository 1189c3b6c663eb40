// SPDX-License-Identifier: Apache-2.0
// The log of the server: notes, and one line per request, without any of the request's text.
#pragma once

#include <string>
#include <string_view>

namespace server {

// Sets the file for later lines. "" is standard error. Throws std::runtime_error if the file cannot be opened.
void open_log(const std::string& file);

// Lines wait for the reader of a full pipe, for ten seconds at most, until this call. Later lines are lost instead, and the next
// line that is written has the number of lost lines before it: requests must not wait for the log.
void never_wait_for_log();

// Writes "minim-server: TIME LINE", with the time in UTC. Any thread.
void write_note(std::string_view line);

// Writes "minim-server: LINE": what a person at a terminal reads before the server serves.
void write_plain(std::string_view line);

// Writes a note the first time that it is called with this key. The word before the key's first space is its kind, from a fixed
// list: at most 100 keys of each kind are written, so that requests cannot fill the log. Any thread.
void note_once(const std::string& key, std::string_view line);

}  // namespace server
