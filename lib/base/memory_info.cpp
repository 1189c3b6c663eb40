// SPDX-License-Identifier: Apache-2.0
#include "base/memory_info.h"

#include <sys/resource.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstring>

namespace minim {
namespace {

bool read_number(const char* path, uint64_t& value) noexcept {
    std::FILE* file = std::fopen(path, "re");
    if (file == nullptr) return false;
    const bool found = std::fscanf(file, "%" SCNu64, &value) == 1;  // "max", not a number: no limit
    std::fclose(file);
    return found;
}

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

// Returns the bytes left under the limit of one control group. Page cache counts as free: it can be reclaimed.
uint64_t group_available(const char* folder) noexcept {
    char path[1200];
    uint64_t limit = 0;
    uint64_t used = 0;
    std::snprintf(path, sizeof(path), "%s/memory.max", folder);
    if (!read_number(path, limit)) return UINT64_MAX;
    std::snprintf(path, sizeof(path), "%s/memory.current", folder);
    if (!read_number(path, used)) return UINT64_MAX;
    uint64_t cache = 0;
    std::snprintf(path, sizeof(path), "%s/memory.stat", folder);
    if (std::FILE* file = std::fopen(path, "re")) {
        char line[256];
        uint64_t bytes = 0;
        while (std::fgets(line, sizeof(line), file) != nullptr) {
            if (std::sscanf(line, "inactive_file %" SCNu64, &bytes) == 1) cache += bytes;
            if (std::sscanf(line, "active_file %" SCNu64, &bytes) == 1) cache += bytes;
        }
        std::fclose(file);
    }
    used -= std::min(used, cache);
    return limit - std::min(limit, used);
}

// Returns the bytes left under the limits of control groups (version 2). Every group from the process's own up to the root may
// have a limit.
uint64_t cgroup_available() noexcept {
    char own[1100] = "";
    if (std::FILE* file = std::fopen("/proc/self/cgroup", "re")) {
        char line[1024];
        while (std::fgets(line, sizeof(line), file) != nullptr) {
            if (std::strncmp(line, "0::", 3) == 0) {
                line[std::strcspn(line, "\n")] = '\0';
                std::snprintf(own, sizeof(own), "/sys/fs/cgroup%s", line + 3);
            }
        }
        std::fclose(file);
    }
    constexpr const char* k_root = "/sys/fs/cgroup";
    if (std::strncmp(own, k_root, std::strlen(k_root)) != 0) return group_available(k_root);
    uint64_t available = UINT64_MAX;
    while (std::strlen(own) >= std::strlen(k_root)) {
        available = std::min(available, group_available(own));
        char* slash = std::strrchr(own, '/');
        if (slash == nullptr) break;
        *slash = '\0';
    }
    return available;
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
    return std::min({kernel_available(), cgroup_available(), available_address_space_bytes()});
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
