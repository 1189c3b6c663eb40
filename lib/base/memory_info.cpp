// SPDX-License-Identifier: Apache-2.0
#include "base/memory_info.h"

#include <sys/resource.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstring>

#include "base/control_groups.h"

namespace minim {
namespace {

// Reads the value of the line that begins with `pattern`, in bytes. Returns false if there is none.
bool read_memory_line(const char* path, const char* pattern, uint64_t& bytes) noexcept {
    std::FILE* file = std::fopen(path, "re");
    if (file == nullptr) return false;
    char line[256];
    bool found = false;
    const size_t length = std::strlen(pattern);
    while (!found && std::fgets(line, sizeof(line), file) != nullptr) {
        uint64_t kilobytes = 0;
        found = std::strncmp(line, pattern, length) == 0 &&
                std::sscanf(line + length, "%" SCNu64, &kilobytes) == 1;
        if (found) bytes = kilobytes * 1024;
    }
    std::fclose(file);
    return found;
}

uint64_t kernel_available() noexcept {
    uint64_t bytes = 0;
    return read_memory_line("/proc/meminfo", "MemAvailable:", bytes) ? bytes : UINT64_MAX;
}

}  // namespace

uint64_t available_address_space_bytes() noexcept {
    rlimit limit{};
    if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return UINT64_MAX;
    uint64_t used = 0;
    read_memory_line("/proc/self/status", "VmSize:", used);
    return limit.rlim_cur - std::min<uint64_t>(limit.rlim_cur, used);
}

uint64_t available_memory_bytes() noexcept {
    return std::min({kernel_available(), control_group_memory(), available_address_space_bytes()});
}

uint64_t total_memory_bytes() noexcept {
    uint64_t bytes = 0;
    read_memory_line("/proc/meminfo", "MemTotal:", bytes);
    return bytes;
}

LockLimit lock_limit() noexcept {
    LockLimit lock;
    rlimit limit{};
    if (::getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
        lock.limit = limit.rlim_cur;
    read_memory_line("/proc/self/status", "VmLck:", lock.locked);
    return lock;
}

}  // namespace minim
