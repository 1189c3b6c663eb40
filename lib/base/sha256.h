// SPDX-License-Identifier: Apache-2.0
// SHA-256 (FIPS 180-4), for files of checksums that other programs write and read. hash.h is faster, and enough where nobody else
// needs the hash.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace minim {

class Sha256 {
  public:
    void add(std::span<const std::byte> bytes) noexcept;
    // Returns the hash as 64 hexadecimal digits. Nothing may be added afterwards.
    std::string finish();

  private:
    void add_block(const std::byte* block) noexcept;

    std::array<uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    std::array<std::byte, 64> rest_ = {};  // bytes that do not fill a block yet
    size_t n_rest_ = 0;
    uint64_t n_bytes_ = 0;
};

}  // namespace minim
