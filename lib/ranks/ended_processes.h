// SPDX-License-Identifier: Apache-2.0
// Waits for the end of other processes of this machine, which the system tells at once, whoever started them.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

namespace minim::ranks {

// One thread, but for wake().
class EndedProcesses {
  public:
    // Throws io.
    EndedProcesses();
    ~EndedProcesses();
    EndedProcesses(const EndedProcesses&) = delete;
    EndedProcesses& operator=(const EndedProcesses&) = delete;

    // Adds a process under a number of the caller's. Does nothing where the system cannot watch it: before Linux 5.3, and where a
    // container forbids it.
    void add(int32_t number, int64_t pid);

    // Waits for the end of a process, for wake() or for the time. Returns the numbers of those that have ended since the last call.
    std::vector<int32_t> wait(std::chrono::milliseconds time);
    void wake() const noexcept;  // any thread

  private:
    struct Process {
        int32_t number;
        int descriptor;
    };
    int wake_;  // an eventfd
    std::vector<Process> processes_;
    std::vector<int32_t> already_ended_;
};

}  // namespace minim::ranks
