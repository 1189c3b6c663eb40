// SPDX-License-Identifier: Apache-2.0
// System calls that write files, repeated until all is done. Errors name the path; all throw io.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace minim {

// Returns whether an error says that the system does not do something at all, or not here: file systems without an operation,
// sandboxes. A full disk or a broken one is no refusal.
bool is_refusal(int code) noexcept;

// Reserves room for `bytes` bytes, on file systems that can. `mode`: of fallocate().
void make_room(int descriptor, std::string_view path, uint64_t bytes, int mode = 0);

void write_all_at(int descriptor, std::string_view path, uint64_t offset, std::span<const std::byte> data);

// Blocks until the file is on the disk. A file system that cannot flush makes the data no safer than this.
void flush_file(int descriptor, std::string_view path);

}  // namespace minim
