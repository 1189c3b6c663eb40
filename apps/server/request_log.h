// SPDX-License-Identifier: Apache-2.0
// The log of the server: notes, and one line per request, without any of the request's text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace server {

// Sets the file and the form of later lines. File "" is standard error. Throws std::runtime_error if the file cannot be opened.
void open_log(const std::string& file, bool is_json);

// Opens the file of open_log() again, under which there may be another one meanwhile (logrotate). Throws std::runtime_error if it cannot
// be opened; the log then stays where it is.
void reopen_log();

// Lines wait for the reader of a full pipe, for ten seconds at most, until this call. Later lines are lost instead, and the next
// line that is written has the number of lost lines before it: requests must not wait for the log.
void never_wait_for_log();

// Writes "minim-server: TIME LINE", with the time in UTC, or an object with `time`, `event`, `level` and `message`. Any thread.
void write_note(std::string_view line);

// Writes "minim-server: error: LINE": what a person at a terminal reads if the server does not start, or has to end.
void write_error(std::string_view line);

// Writes a note the first time that it is called with this key. The word before the key's first space is its kind, from a fixed
// list: at most 100 keys of each kind are written, so that requests cannot fill the log. Any thread.
void note_once(const std::string& key, std::string_view line);

// Of a request that the model has answered.
struct AnswerFigures {
    std::string model;
    uint64_t n_prompt = 0;  // tokens
    uint64_t n_cached = 0;
    uint64_t n_generated = 0;
    double queue_ms = 0;
    double first_token_ms = 0;  // since the request came
};

struct RequestFigures {
    std::string client;
    std::string id;
    std::string method;
    std::string path;
    int status = 0;
    double ms = 0;
    bool client_has_gone = false;
    std::optional<AnswerFigures> answer;
};

// Writes the line of a request that has ended.
void write_request(const RequestFigures& request);

}  // namespace server
