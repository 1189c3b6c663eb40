// The table of kernels of one instruction set. A kernel is a free function on plain memory; it knows no
// thread, no tensor and no error. The algorithms are written once, in generic/, over the small vector
// vocabulary of each folder's simd.h, and every instruction set gives the same bits: see generic/README.md
// for the order of each sum.
//
// This header is seen by files compiled for different instruction sets, so it holds nothing with code of its
// own that could be compiled out of line.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/platform.h"
#include "format/format.h"

namespace minim::cpu {

// How a linear kernel wants its input rows.
enum class Activation : uint8_t {
    f32,  // plain
    q8,   // 8-bit codes, a scale for 32, sums of 16 codes
};
inline constexpr size_t k_activation_count = 2;

// Where the parts of a quantised input row lie; all rows of a matrix are alike.
//   q8:  int8 code[cols], float scale[cols / 32], float scaled_sum[cols / 16], int16 sum[cols / 16]
// Codes lie in -127 .. 127; scaled_sum is scale * sum. A row is padded to 64 bytes. One layout serves every
// packed weight format. A scale for 256, as Q8_K has it, would spare the formats with blocks of 256 a
// multiplication, but costs too much accuracy: with it the median logits of a Q4_K model are 1.7 % off, with
// a scale for 32 they stay within 1 %.
struct ActivationLayout {
    int64_t scale_offset;
    int64_t scaled_sum_offset;
    int64_t sum_offset;
    int64_t row_bytes;
};

MINIM_HOST_DEVICE constexpr int64_t round_up_64(int64_t value) {
    return (value + 63) / 64 * 64;
}

MINIM_HOST_DEVICE constexpr ActivationLayout activation_layout(Activation activation, int64_t cols) {
    if (activation == Activation::f32) return {0, 0, 0, cols * 4};
    const int64_t scaled_sums = cols + cols / 32 * 4;
    const int64_t sums = scaled_sums + cols / 16 * 4;
    return {cols, scaled_sums, sums, round_up_64(sums + cols / 16 * 2)};
}

// y[t][r] = scale * (row r of W) . (input row t), or added to y[t][r].
struct LinearArgs {
    const std::byte* weight;  // row 0; whole panels (panel.h) where the kernel reads packed weights
    int64_t row_bytes;
    int64_t n_rows;
    int64_t cols;  // a multiple of the weight format's block
    float scale;
    const std::byte* input;  // laid out as the kernel's Activation says
    int64_t input_row_bytes;
    const int32_t* input_rows;  // which input row token t is; null: row t
    int64_t n_tokens;
    float* y;
    int64_t y_stride;  // floats from token t to token t + 1
    bool add;
    std::byte* scratch;  // of a kernel of packed weights: unpacked_panel_bytes(cols)
};

// One panel with its codes as bytes: 16 codes a column, and for 16 columns a scale and a minimum a row.
MINIM_HOST_DEVICE constexpr int64_t unpacked_panel_bytes(int64_t cols) {
    return cols / 32 * (512 + 4 * 64);
}

struct LinearKernel {
    Activation activation;  // q8 for packed weights, f32 for rows of floats
    void (*run)(const LinearArgs& args);
};

// The kernels of some formats, by Format; no `run` for the others.
struct LinearKernels {
    LinearKernel by_format[k_format_count];
};
struct LinearKernelFamilies {
    const LinearKernels* family[7];
};

// y[s][c] = y[s][c] + sum over rows r, in order, of weight[s][r] * row[r][c]
struct WeightedSumArgs {
    const std::byte* rows;
    int64_t row_bytes;
    int64_t n_rows;
    int64_t cols;
    const float* weight;
    int64_t weight_stride;
    int64_t n_sums;
    float* y;
    int64_t y_stride;
};

struct SoftmaxTotals {
    float largest;  // of x before
    float sum;      // of x after
};

// What attention does with cached keys, as weights of a linear with F32 inputs, and with cached values.
struct KvKernels {
    Format format;
    void (*scores)(const LinearArgs& args);
    void (*weighted_sum)(const WeightedSumArgs& args);
};

struct KernelTable {
    const char* name;  // "scalar", "avx2", "avx512"

    LinearKernelFamilies linear;  // each format that holds weights is in one of them

    // One row of `cols` floats into the layout above; cols is a multiple of 32.
    void (*quantize_q8)(const float* x, int64_t cols, std::byte* out);

    // h = x / sqrt(mean(x^2) + eps) * weight; h may be x.
    void (*rms_norm)(const float* x, int64_t n, const float* weight, float eps, float* h);
    void (*sigmoid)(const float* x, int64_t n, float* y);                         // y may be x
    void (*silu_mul)(const float* gate, const float* up, int64_t n, float* out);  // out may be gate or up
    void (*add_scaled)(const float* x, float factor, int64_t n, float* y);        // y += factor * x
    // x = exp(x - max(x)). -infinity and 0 for n = 0.
    SoftmaxTotals (*softmax_exp)(float* x, int64_t n);
    KvKernels kv[5];
    void (*narrow_f16)(const float* x, int64_t n, std::byte* out);  // rounds to nearest even
};

// One folder each.
extern const KernelTable k_scalar_kernels;
extern const KernelTable k_avx2_kernels;    // x86-64 only
extern const KernelTable k_avx512_kernels;  // x86-64 only

}  // namespace minim::cpu
