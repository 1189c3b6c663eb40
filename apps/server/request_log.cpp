// SPDX-License-Identifier: Apache-2.0
#include "request_log.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <ctime>
#include <map>
#include <mutex>
#include <stdexcept>
#include <system_error>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>

#include "json.h"

namespace server {

namespace {

// Guards what follows, and keeps lines whole.
std::mutex log_mutex;
std::string log_file;  // "": standard error
int log_descriptor = STDERR_FILENO;
bool waits_for_reader = true;  // until never_wait_for_log(), or the reader has let a line wait too long
int64_t n_lost = 0;            // lines since the last notice about them

std::atomic<bool> logs_json = false;

// Uses the file for later lines. Throws std::runtime_error. With log_mutex.
void use_log_file(const std::string& file) {
    const int descriptor = ::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0640);
    if (descriptor < 0)
        throw std::runtime_error("cannot open the log file '" + file +
                                 "': " + std::generic_category().message(errno));
    if (log_descriptor != STDERR_FILENO) ::close(log_descriptor);
    log_descriptor = descriptor;
}

}  // namespace

void open_log(const std::string& file, bool is_json) {
    logs_json = is_json;
    const std::lock_guard lock(log_mutex);
    if (!file.empty()) use_log_file(file);
    log_file = file;
}

void reopen_log() {
    const std::lock_guard lock(log_mutex);
    if (!log_file.empty()) use_log_file(log_file);
}

void never_wait_for_log() {
    const std::lock_guard lock(log_mutex);
    waits_for_reader = false;
}

namespace {

constexpr size_t k_longest_line = 4000;  // bytes: a pipe takes it whole or not at all

// Returns the time as in "2026-01-31T08:05:09.123Z".
std::string now_text() {
    const auto now = std::chrono::system_clock::now();
    const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
    const auto ms =
        std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count() % 1000;
    std::tm utc{};
    gmtime_r(&seconds, &utc);
    return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", utc.tm_year + 1900, utc.tm_mon + 1,
                       utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec, ms);
}

// Replaces control characters by blanks, but for line ends.
std::string printable(std::string_view text) {
    std::string line(text);
    for (char& c : line)
        if (static_cast<unsigned char>(c) < 0x20 && c != '\n') c = ' ';
    return line;
}

Json json_line(const char* event, const char* level) {
    return {{"time", now_text()}, {"event", event}, {"level", level}};
}

// Returns the line of a message.
std::string message_line(std::string_view message, const char* level, bool has_time) {
    if (!logs_json)
        return fmt::format("minim-server: {}{}", has_time ? now_text() + " " : "",
                           printable(message.substr(0, k_longest_line)));
    Json line = json_line("note", level);
    line["message"] = printable(message.substr(0, k_longest_line));
    std::string text = to_text(line);
    if (text.size() <= k_longest_line) return text;
    line["message"] = printable(message.substr(0, k_longest_line / 4));  // escapes at most treble it
    return to_text(line);
}

// Returns whether the log takes a line, for which it may have to be read first. With log_mutex.
bool has_room(int wait_ms) {
    pollfd poll_descriptor = {log_descriptor, POLLOUT, 0};
    return ::poll(&poll_descriptor, 1, wait_ms) == 1 && (poll_descriptor.revents & POLLOUT) != 0;
}

// Counts a line that the disk does not take.
void write_all(const std::string& text) {
    const ssize_t written = ::write(log_descriptor, text.data(), text.size());
    if (written < 0 || written < static_cast<ssize_t>(text.size())) ++n_lost;
}

// Writes a line, whose end is added.
void write_line(std::string line) {
    line += '\n';
    const std::lock_guard lock(log_mutex);
    if (n_lost > 0 && has_room(0)) {
        const std::string notice = fmt::format(
            "{} lines of the log were lost before this one: it was not read fast enough, or could not be "
            "written",
            std::exchange(n_lost, 0));
        write_all(message_line(notice, "warning", false) + "\n");
    }
    constexpr int k_longest_wait_ms = 10000;
    if (!has_room(waits_for_reader ? k_longest_wait_ms : 0)) {
        waits_for_reader = false;
        ++n_lost;
        return;
    }
    write_all(line);
}

// Returns a name as one word: as it is, or in quotes.
std::string as_word(const std::string& name) {
    const bool is_word = !name.empty() && name.find_first_of(" \t\"\\") == std::string::npos;
    return is_word ? name : to_text(Json(name));
}

std::string request_text(const RequestFigures& request) {
    std::string text = fmt::format("{} {} {} {} status={} ms={:.0f}", request.client, request.id,
                                   request.method, request.path, request.status, request.ms);
    if (request.answer) {
        const AnswerFigures& answer = *request.answer;
        text +=
            fmt::format(" model={} prompt={} cached={} generated={} queue_ms={:.0f} first_token_ms={:.0f}",
                        as_word(answer.model), answer.n_prompt, answer.n_cached, answer.n_generated,
                        answer.queue_ms, answer.first_token_ms);
    }
    if (request.client_has_gone) text += " client_gone";
    return text;
}

double rounded(double ms) {
    return std::round(ms * 1000) / 1000;
}

std::string request_json(const RequestFigures& request) {
    Json line = json_line("request", "info");
    line.update({{"client", request.client},
                 {"id", request.id},
                 {"method", request.method},
                 {"path", request.path},
                 {"status", request.status},
                 {"ms", rounded(request.ms)}});
    if (request.answer) {
        const AnswerFigures& answer = *request.answer;
        line.update({{"model", answer.model},
                     {"prompt_tokens", answer.n_prompt},
                     {"cached_tokens", answer.n_cached},
                     {"generated_tokens", answer.n_generated},
                     {"queue_ms", rounded(answer.queue_ms)},
                     {"first_token_ms", rounded(answer.first_token_ms)}});
    }
    line["client_gone"] = request.client_has_gone;
    return to_text(line);
}

}  // namespace

void write_note(std::string_view line) {
    write_line(message_line(line, "info", true));
}

void write_error(std::string_view line) {
    write_line(message_line(logs_json ? std::string(line) : fmt::format("error: {}", line), "error", false));
}

void write_request(const RequestFigures& request) {
    if (logs_json) return write_line(request_json(request));
    write_note(request_text(request));
}

void note_once(const std::string& key, std::string_view line) {
    constexpr size_t k_max = 100;  // of each kind
    constexpr size_t k_longest_key = 200;
    static std::mutex mutex;
    static std::map<std::string, std::unordered_set<std::string>> known;  // by kind
    {
        const std::lock_guard lock(mutex);
        std::unordered_set<std::string>& keys = known[key.substr(0, key.find(' ')).substr(0, k_longest_key)];
        if (keys.size() >= k_max || !keys.insert(key.substr(0, k_longest_key)).second) return;
    }
    write_note(line);
}

}  // namespace server
