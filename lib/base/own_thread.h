// Threads of the library in a process that belongs to its host: they have names, leave the process's signals to the host's threads,
// and do not exist in a child of fork().
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <thread>

namespace minim {

// Starts a thread that debuggers and `top` show as `name` (at most 15 characters are kept). It blocks all signals but those that
// a fault of its own raises. Throws out_of_memory, naming `what`: "worker thread 2 of 4".
std::thread start_thread(std::string_view name, std::string_view what, std::function<void()> body);

// Remembers the process that something with threads or locks was made in.
class HomeProcess {
  public:
    // Throws out_of_memory.
    HomeProcess();

    // Whether this process is a child that fork() made since: threads that were started before are not in it, and locks that they
    // held stay locked. Any thread.
    bool is_left() const noexcept;

    // Throws invalid in such a child, naming `what`: "the engine".
    void require(std::string_view what) const;

  private:
    uint32_t n_forks_;
};

}  // namespace minim
