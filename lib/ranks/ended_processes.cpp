// SPDX-License-Identifier: Apache-2.0
#include "ranks/ended_processes.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/io_error.h"

namespace minim::ranks {
namespace {

// Returns a descriptor that becomes readable when the process ends, or -1 and errno.
int open_process(int64_t pid) {
    return static_cast<int>(::syscall(SYS_pidfd_open, static_cast<pid_t>(pid), 0U));
}

}  // namespace

EndedProcesses::EndedProcesses() : wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (wake_ < 0) fail_io("an eventfd", "open", errno);
}

EndedProcesses::~EndedProcesses() {
    for (const Process& process : processes_) ::close(process.descriptor);
    ::close(wake_);
}

void EndedProcesses::add(int32_t number, int64_t pid) {
    const int descriptor = open_process(pid);
    if (descriptor >= 0) {
        processes_.push_back({number, descriptor});
    } else if (errno == ESRCH) {
        already_ended_.push_back(number);
    }
}

std::vector<int32_t> EndedProcesses::wait(std::chrono::milliseconds time) {
    std::vector<int32_t> ended = std::exchange(already_ended_, {});
    if (!ended.empty()) return ended;
    std::vector<pollfd> entries;
    for (const Process& process : processes_) entries.push_back({process.descriptor, POLLIN, 0});
    entries.push_back({wake_, POLLIN, 0});
    if (::poll(entries.data(), entries.size(), static_cast<int>(time.count())) <= 0) return ended;
    std::vector<Process> living;
    for (size_t i = 0; i < processes_.size(); ++i) {
        if (entries[i].revents == 0) {
            living.push_back(processes_[i]);
            continue;
        }
        ended.push_back(processes_[i].number);
        ::close(processes_[i].descriptor);
    }
    processes_ = std::move(living);
    uint64_t count = 0;
    if (entries.back().revents != 0) static_cast<void>(::read(wake_, &count, sizeof(count)));
    return ended;
}

void EndedProcesses::wake() const noexcept {
    const uint64_t one = 1;
    static_cast<void>(::write(wake_, &one, sizeof(one)));
}

}  // namespace minim::ranks
