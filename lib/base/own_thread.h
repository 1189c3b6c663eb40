// SPDX-License-Identifier: Apache-2.0
// Threads of the library in its host's process. They have names, they block signals so that the host's threads get the signals,
// and they do not exist in a child of fork().
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <thread>

namespace minim {

// Starts a thread that debuggers and `top` show as `name` (at most 15 characters are kept). The thread blocks all signals except
// those of its own faults (SIGSEGV ...). Throws out_of_memory, naming `what`: "worker thread 2 of 4".
std::thread start_thread(std::string_view name, std::string_view what, std::function<void()> body);

// Remembers the process that created an object with threads or locks.
class HomeProcess {
  public:
    // Throws out_of_memory.
    HomeProcess();

    // Returns whether this process is a child that fork() made after the construction of this object. Such a child lacks the
    // threads that were started before, and the locks that they had stay locked. Any thread.
    bool is_left() const noexcept;

    // Throws invalid in such a child, naming `what`: "the engine".
    void require(std::string_view what) const;

  private:
    uint32_t n_forks_;
};

}  // namespace minim
