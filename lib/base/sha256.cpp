// SPDX-License-Identifier: Apache-2.0
#include "base/sha256.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/format_text.h"

namespace minim {
namespace {

// The first 32 bits of the fractions of the cube roots of the first 64 primes.
constexpr uint32_t k_sha256_constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

uint32_t load_big_endian(const std::byte* bytes) noexcept {
    uint32_t word = 0;
    for (int i = 0; i < 4; ++i) word = word << 8 | std::to_integer<uint32_t>(bytes[i]);
    return word;
}

}  // namespace

void Sha256::add_block(const std::byte* block) noexcept {
    uint32_t words[64];
    for (int i = 0; i < 16; ++i) words[i] = load_big_endian(block + 4 * i);
    for (int i = 16; i < 64; ++i) {
        const uint32_t a = words[i - 15];
        const uint32_t b = words[i - 2];
        words[i] = words[i - 16] + (std::rotr(a, 7) ^ std::rotr(a, 18) ^ (a >> 3)) + words[i - 7] +
                   (std::rotr(b, 17) ^ std::rotr(b, 19) ^ (b >> 10));
    }
    auto [a, b, c, d, e, f, g, h] = state_;
    for (int i = 0; i < 64; ++i) {
        const uint32_t t1 = h + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) +
                            ((e & f) ^ (~e & g)) + k_sha256_constants[i] + words[i];
        const uint32_t t2 =
            (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
        h = g;
        g = f;
        f = e;
        e = d + t1;
        d = c;
        c = b;
        b = a;
        a = t1 + t2;
    }
    const uint32_t sums[] = {a, b, c, d, e, f, g, h};
    for (size_t i = 0; i < 8; ++i) state_[i] += sums[i];
}

void Sha256::add(std::span<const std::byte> bytes) noexcept {
    n_bytes_ += bytes.size();
    while (!bytes.empty()) {
        if (n_rest_ == 0 && bytes.size() >= rest_.size()) {
            add_block(bytes.data());
            bytes = bytes.subspan(rest_.size());
            continue;
        }
        const size_t n = std::min(bytes.size(), rest_.size() - n_rest_);
        std::memcpy(rest_.data() + n_rest_, bytes.data(), n);
        n_rest_ += n;
        bytes = bytes.subspan(n);
        if (n_rest_ < rest_.size()) continue;
        add_block(rest_.data());
        n_rest_ = 0;
    }
}

std::string Sha256::finish() {
    const uint64_t n_bits = n_bytes_ * 8;
    // A bit, zeros, and the number of bits at the end of a block.
    std::array<std::byte, 72> padding = {std::byte{0x80}};
    const size_t n_zeros = (119 - n_rest_) % 64;
    for (size_t i = 0; i < 8; ++i) padding[1 + n_zeros + i] = static_cast<std::byte>(n_bits >> (56 - 8 * i));
    add(std::span(padding).first(1 + n_zeros + 8));
    std::string text;
    for (const uint32_t word : state_) text += format_text("{:08x}", word);
    return text;
}

}  // namespace minim
