// SPDX-License-Identifier: Apache-2.0
// Open file descriptors of the host: names them as paths, copies them so that they outlive the host's own, and writes to them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace minim {

// Returns "/proc/self/fd/N".
std::string descriptor_path(int descriptor);

// Returns N of the whole path "/proc/self/fd/N" or "/dev/fd/N"; nothing for any other path.
std::optional<int> descriptor_of(std::string_view path);

// A copy of a descriptor, closed together with this object. It shares the position of the original.
class Descriptor {
  public:
    Descriptor() noexcept = default;
    // Throws invalid if the descriptor is negative, io if it is not open.
    static Descriptor copy_of(int descriptor);
    ~Descriptor();
    Descriptor(Descriptor&& other) noexcept;
    Descriptor& operator=(Descriptor&& other) noexcept;
    Descriptor(const Descriptor&) = delete;
    Descriptor& operator=(const Descriptor&) = delete;

    int number() const noexcept { return number_; }  // -1: none

  private:
    int number_ = -1;
};

// Returns the position of a file. Throws invalid for a negative descriptor, io for one that is not open, or that has no position.
uint64_t position_of(int descriptor);
// Sets the position of a file that was just read.
void set_position(int descriptor, uint64_t position) noexcept;

// Writes at the file's position. Waits if a non-blocking descriptor is not ready. Throws invalid or io. Throws io (EPIPE),
// without raising SIGPIPE, for a pipe or socket that nobody reads.
void write_to(int descriptor, std::span<const std::byte> data);

}  // namespace minim
