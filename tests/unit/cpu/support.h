// SPDX-License-Identifier: Apache-2.0
// Helpers for the tests of the CPU backend: the instruction sets of this machine, random weights of any format
// with sane scales, quantised inputs read back, and comparison bit for bit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/cpu_features.h"
#include "cpu/kernels.h"

namespace minim::test {

// Returns the kernel tables of all levels this machine has, scalar first.
std::vector<const cpu::KernelTable*> kernel_tables();

class Random {
  public:
    explicit Random(uint32_t seed) : engine_(seed) {}
    std::vector<float> normal(int64_t count, float scale = 1.0F);
    int64_t below(int64_t limit) { return static_cast<int64_t>(engine_() % static_cast<uint64_t>(limit)); }
    std::byte byte() { return static_cast<std::byte>(engine_() & 255U); }

  private:
    std::mt19937 engine_;
};

// Returns whether the format's kernels take inputs as floats.
inline bool takes_floats(Format format) {
    return traits(format).block_elems == 1 || format == Format::fp8_e4m3_b128 || format == Format::mxfp8;
}

// A matrix of random codes, whose scales give weights of about 1: its bytes, and a view of them.
struct TestMatrix {
    std::vector<std::byte> bytes;
    backend::Matrix view;

    TestMatrix(Format format, int64_t rows, int64_t cols, Random& random);
    TestMatrix(const TestMatrix&) = delete;
    TestMatrix(TestMatrix&&) = default;

    std::vector<float> decoded_row(int64_t r) const;
};

// Returns whether both have the same number of floats with the same bits; any NaN equals any other.
bool same_bits(std::span<const float> a, std::span<const float> b);
bool same_bits(float a, float b);

// Returns a quantised row read back as numbers: code * scale.
std::vector<double> dequantised(cpu::Activation activation, const std::byte* row, int64_t cols);

// Returns `x` as kernels with this `activation` read it, one row after the other.
std::vector<std::byte> input_rows(const cpu::KernelTable& kernels, cpu::Activation activation,
                                  std::span<const float> x, int64_t n, int64_t cols);

struct Dot {
    double value = 0.0;
    double magnitude = 0.0;  // the sum of |w a|, with which rounding errors are compared
};
Dot exact_dot(std::span<const float> w, std::span<const double> a);
Dot exact_dot(std::span<const float> w, std::span<const float> a);

}  // namespace minim::test
