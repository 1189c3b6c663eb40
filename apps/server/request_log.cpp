// SPDX-License-Identifier: Apache-2.0
#include "request_log.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <map>
#include <mutex>
#include <stdexcept>
#include <system_error>
#include <unordered_set>

#include <fmt/format.h>

namespace server {

namespace {

// Guards what follows, and keeps lines whole.
std::mutex log_mutex;
int log_descriptor = STDERR_FILENO;
bool waits_for_reader = true;  // until never_wait_for_log(), or the reader has let a line wait too long
int64_t n_lost = 0;            // lines since the last notice about them

}  // namespace

void open_log(const std::string& file) {
    if (file.empty()) return;
    const int descriptor = ::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0640);
    if (descriptor < 0)
        throw std::runtime_error("cannot open the log file '" + file +
                                 "': " + std::generic_category().message(errno));
    const std::lock_guard lock(log_mutex);
    log_descriptor = descriptor;
}

void never_wait_for_log() {
    const std::lock_guard lock(log_mutex);
    waits_for_reader = false;
}

namespace {

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

// Returns whether the log takes a line, for which it may have to be read first. With log_mutex.
bool has_room(int wait_ms) {
    pollfd poll_descriptor = {log_descriptor, POLLOUT, 0};
    return ::poll(&poll_descriptor, 1, wait_ms) == 1 && (poll_descriptor.revents & POLLOUT) != 0;
}

void write_all(const std::string& text) {
    [[maybe_unused]] const ssize_t written = ::write(log_descriptor, text.data(), text.size());
}

void write_line(std::string text, std::string_view line) {
    constexpr size_t k_longest = 4000;  // a pipe takes it whole or not at all
    for (const char c : line.substr(0, k_longest))
        text += static_cast<unsigned char>(c) < 0x20 && c != '\n' ? ' ' : c;
    text += '\n';
    const std::lock_guard lock(log_mutex);
    if (n_lost > 0 && has_room(0)) {
        write_all(
            fmt::format("minim-server: {} lines of the log were lost before this one: it was not read fast "
                        "enough\n",
                        n_lost));
        n_lost = 0;
    }
    constexpr int k_longest_wait_ms = 10000;
    if (!has_room(waits_for_reader ? k_longest_wait_ms : 0)) {
        waits_for_reader = false;
        ++n_lost;
        return;
    }
    write_all(text);
}

}  // namespace

void write_note(std::string_view line) {
    write_line("minim-server: " + now_text() + " ", line);
}

void write_plain(std::string_view line) {
    write_line("minim-server: ", line);
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
