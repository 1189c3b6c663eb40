// SPDX-License-Identifier: Apache-2.0
// The generator behind sampling: xoshiro256** (Blackman and Vigna, "Scrambled linear pseudorandom number
// generators"), its 256 bits of state filled from the seed by splitmix64 as its authors advise. Integer
// arithmetic only, so a seed gives the same sequence on every machine. Tests pin it, because a change of the generator
// would change every seeded answer.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

namespace minim::sampling {

// Returns the next value of splitmix64 and moves its state on.
constexpr uint64_t splitmix64(uint64_t& state) noexcept {
    state += 0x9e3779b97f4a7c15;
    uint64_t z = state;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

class Random {
  public:
    explicit constexpr Random(uint64_t seed) noexcept {
        for (uint64_t& word : state_) word = splitmix64(seed);
    }

    // Sets the state, which must not be all zero.
    explicit constexpr Random(const std::array<uint64_t, 4>& state) noexcept : state_(state) {}

    constexpr uint64_t next() noexcept {
        const uint64_t result = std::rotl(state_[1] * 5, 7) * 9;
        const uint64_t shifted = state_[1] << 17;
        state_[2] ^= state_[0];
        state_[3] ^= state_[1];
        state_[1] ^= state_[2];
        state_[0] ^= state_[3];
        state_[2] ^= shifted;
        state_[3] = std::rotl(state_[3], 45);
        return result;
    }

    // Returns a uniform number in [0, 1), a multiple of 2^-53.
    constexpr double uniform() noexcept { return static_cast<double>(next() >> 11) * 0x1p-53; }

  private:
    std::array<uint64_t, 4> state_{};
};

}  // namespace minim::sampling
