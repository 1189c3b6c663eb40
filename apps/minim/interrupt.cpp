// SPDX-License-Identifier: Apache-2.0
#include "interrupt.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <system_error>

namespace cli {
namespace {

// Global, because a signal handler has no other access to data.
std::atomic<minim_cancel*> interrupt_cancel{nullptr};
std::atomic<int> interrupt_pipe{-1};  // of SurviveInterrupts
std::atomic<bool> has_triggered{false};

void on_interrupt(int) {
    const int saved_errno = errno;
    minim_cancel* cancel = interrupt_cancel.exchange(nullptr);
    const int pipe = interrupt_pipe;
    if (cancel == nullptr && pipe < 0) _exit(k_exit_interrupted);
    if (cancel != nullptr) {
        minim_cancel_trigger(cancel);
        has_triggered = true;
    } else if (write(pipe, "", 1) < 0) {
        // The pipe is full of interrupts that were not read yet.
    }
    errno = saved_errno;
}

void handle_interrupts() {
    struct sigaction action {};
    action.sa_handler = on_interrupt;
    action.sa_flags =
        SA_RESTART;  // a write in progress is completed; the library looks at the switch afterwards
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, nullptr);
}

}  // namespace

CancelOnInterrupt::CancelOnInterrupt(const minim::Cancel& cancel) {
    interrupt_cancel = cancel.get();
    handle_interrupts();
}

CancelOnInterrupt::~CancelOnInterrupt() {
    interrupt_cancel = nullptr;
}

bool was_interrupted() noexcept {
    return has_triggered;
}

SurviveInterrupts::SurviveInterrupts() {
    std::array<int, 2> ends;
    if (pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0)
        throw std::system_error(errno, std::generic_category(), "pipe");
    read_end_ = ends[0];
    write_end_ = ends[1];
    interrupt_pipe = write_end_;
    interrupt_cancel = nullptr;  // removes the switch of a CancelOnInterrupt around the chat
    handle_interrupts();
}

SurviveInterrupts::~SurviveInterrupts() {
    interrupt_pipe = -1;
    close(read_end_);
    close(write_end_);
}

void SurviveInterrupts::clear() noexcept {
    std::array<char, 64> bytes;
    while (read(read_end_, bytes.data(), bytes.size()) > 0) {
    }
}

}  // namespace cli
