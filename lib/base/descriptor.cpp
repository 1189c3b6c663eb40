// SPDX-License-Identifier: Apache-2.0
#include "base/descriptor.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <ctime>
#include <utility>

#include "base/error.h"
#include "base/format_text.h"
#include "base/io_error.h"

namespace minim {
namespace {

void require_sensible(int descriptor) {
    if (descriptor < 0) fail(Status::invalid, "the descriptor is {}; it must not be negative", descriptor);
}

std::string name_of(int descriptor) {
    return format_text("descriptor {}", descriptor);
}

// Blocks SIGPIPE for this thread, and at the end discards a SIGPIPE that a write has caused.
class NoPipeSignal {
  public:
    NoPipeSignal() {
        ::sigemptyset(&pipe_);
        ::sigaddset(&pipe_, SIGPIPE);
        sigset_t pending;
        ::sigpending(&pending);
        was_pending_ = ::sigismember(&pending, SIGPIPE) == 1;
        ::pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
    }
    ~NoPipeSignal() {
        const timespec now{};
        if (!was_pending_)
            while (::sigtimedwait(&pipe_, nullptr, &now) < 0 && errno == EINTR) {
            }
        ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    }
    NoPipeSignal(const NoPipeSignal&) = delete;
    NoPipeSignal& operator=(const NoPipeSignal&) = delete;

  private:
    sigset_t pipe_{};
    sigset_t before_{};
    bool was_pending_ = false;
};

void wait_until_ready(int descriptor) {
    pollfd entry = {.fd = descriptor, .events = POLLOUT, .revents = 0};
    if (::poll(&entry, 1, -1) < 0 && errno != EINTR) fail_io(name_of(descriptor), "write", errno);
}

}  // namespace

std::string descriptor_path(int descriptor) {
    return format_text("/proc/self/fd/{}", descriptor);
}

std::optional<int> descriptor_of(std::string_view path) {
    for (const std::string_view folder : {"/proc/self/fd/", "/dev/fd/"}) {
        if (!path.starts_with(folder)) continue;
        const std::string_view digits = path.substr(folder.size());
        int number = -1;
        const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
        if (error == std::errc() && end == digits.data() + digits.size() && number >= 0) return number;
    }
    return std::nullopt;
}

Descriptor Descriptor::copy_of(int descriptor) {
    require_sensible(descriptor);
    Descriptor copy;
    copy.number_ = ::fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
    if (copy.number_ < 0) fail_io(name_of(descriptor), "open", errno);
    return copy;
}

Descriptor::~Descriptor() {
    if (number_ >= 0) ::close(number_);
}

Descriptor::Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
}

uint64_t position_of(int descriptor) {
    require_sensible(descriptor);
    const off_t position = ::lseek(descriptor, 0, SEEK_CUR);
    if (position < 0 && errno == ESPIPE)
        fail_io(name_of(descriptor), "be read at a position, as only a file can (read it to memory first)",
                ESPIPE);
    if (position < 0) fail_io(name_of(descriptor), "be read", errno);
    return static_cast<uint64_t>(position);
}

void set_position(int descriptor, uint64_t position) noexcept {
    ::lseek(descriptor, static_cast<off_t>(position), SEEK_SET);
}

void write_to(int descriptor, std::span<const std::byte> data) {
    constexpr size_t k_largest_write = size_t{1} << 30;  // one call never moves more than about 2 GiB
    require_sensible(descriptor);
    const NoPipeSignal no_signal;
    while (!data.empty()) {
        const ssize_t done = ::write(descriptor, data.data(), std::min(data.size(), k_largest_write));
        if (done >= 0) {
            data = data.subspan(done);
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            wait_until_ready(descriptor);
        } else if (errno != EINTR) {
            fail_io(name_of(descriptor), "write", errno);
        }
    }
}

}  // namespace minim
