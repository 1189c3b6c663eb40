// SPDX-License-Identifier: Apache-2.0
// Limits of the control groups that hold this process: its own group and every parent that it can see, in version 1, in version
// 2, or in both at once.
#pragma once

#include <cstdint>

namespace minim {

// The files in which the system describes control groups. Tests use files of their own.
struct ControlGroupFiles {
    const char* groups = "/proc/self/cgroup";     // the path of the process's group in each hierarchy
    const char* mounts = "/proc/self/mountinfo";  // the mounted hierarchies
    const char* usual_folder = "/sys/fs/cgroup";  // their folder if no mount shows the group
};

// Returns the cores that CPU quotas grant, rounded up; INT32_MAX without a quota.
int32_t control_group_cores(const ControlGroupFiles& files) noexcept;

// Returns the bytes that the process may still allocate under the memory limits; UINT64_MAX without a limit. The page cache of a
// group counts as free, as in the kernel's MemAvailable, because the kernel reclaims it before it ends a process.
uint64_t control_group_memory(const ControlGroupFiles& files) noexcept;

// The same with the system's files. The folders of the groups are found once: a process that is moved later keeps them.
int32_t control_group_cores() noexcept;
uint64_t control_group_memory() noexcept;

}  // namespace minim
