// SPDX-License-Identifier: Apache-2.0
#include "random_id.h"

#include <array>
#include <cstdint>
#include <random>

namespace server {

std::string random_hex(size_t count) {
    static constexpr std::array<char, 17> k_digits = {"0123456789abcdef"};
    thread_local std::random_device device;
    std::string text;
    text.reserve(count);
    uint32_t bits = 0;
    for (size_t i = 0; i < count; ++i) {
        if (i % 8 == 0) bits = device();
        text += k_digits[bits & 15U];
        bits >>= 4U;
    }
    return text;
}

}  // namespace server
