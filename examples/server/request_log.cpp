// SPDX-License-Identifier: Apache-2.0
#include "request_log.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <stdexcept>
#include <system_error>

namespace server {

namespace {

std::atomic<int> log_descriptor{STDERR_FILENO};

}  // namespace

void open_log(const std::string& file) {
    if (file.empty()) return;
    const int descriptor = ::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0640);
    if (descriptor < 0)
        throw std::runtime_error("cannot open the log file '" + file +
                                 "': " + std::generic_category().message(errno));
    log_descriptor = descriptor;
}

void write_note(std::string_view line) {
    constexpr size_t k_longest = 4000;  // a pipe takes it whole or not at all
    std::string text = "minim-server: ";
    for (const char c : line.substr(0, k_longest))
        text += static_cast<unsigned char>(c) < 0x20 && c != '\n' ? ' ' : c;
    text += '\n';
    pollfd poll_descriptor = {log_descriptor, POLLOUT, 0};
    if (::poll(&poll_descriptor, 1, 0) != 1 || (poll_descriptor.revents & POLLOUT) == 0) return;
    [[maybe_unused]] const ssize_t written = ::write(log_descriptor, text.data(), text.size());
}

}  // namespace server
