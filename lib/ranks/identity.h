// SPDX-License-Identifier: Apache-2.0
// What a process tells the others of itself, so that messages can name it and those of its machine can watch it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace minim::ranks {

struct Identity {
    std::string host;
    std::string boot_id;         // of the machine since its start; empty: unknown
    uint64_t pid_namespace = 0;  // in which `pid` counts
    int64_t pid = 0;
    int32_t n_devices = 1;  // ranks of this process
};

// Returns that of this process.
Identity own_identity(int32_t n_devices);

// Returns whether `pid` of one means the same process in the other.
bool is_of_same_machine(const Identity& a, const Identity& b);

std::vector<std::byte> encode(const Identity& identity);
// Throws format.
Identity parse_identity(std::span<const std::byte> bytes);

}  // namespace minim::ranks
