// SPDX-License-Identifier: Apache-2.0
// The table of kernels of one instruction set. A kernel is a free function on plain memory; it knows no
// thread, no tensor and no error. The algorithms are written once, in generic/, over the small vector
// vocabulary of each folder's simd.h, and every instruction set gives the same bits: see generic/README.md
// for the order of each sum.
//
// Files compiled for different instruction sets include this header, so it has no function that could be compiled out of
// line.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/platform.h"
#include "cpu/q8_block.h"
#include "format/format.h"

namespace minim::cpu {

// The form in which a linear kernel reads its input rows.
enum class Activation : uint8_t {
    f32,  // plain
    q8,   // Q8Block
};
inline constexpr size_t k_activation_count = 2;

MINIM_HOST_DEVICE constexpr int64_t round_up_64(int64_t value) {
    return (value + 63) / 64 * 64;
}

MINIM_HOST_DEVICE constexpr int64_t activation_row_bytes(Activation activation, int64_t cols) {
    return activation == Activation::f32 ? cols * 4
                                         : round_up_64(cols / 32 * static_cast<int64_t>(sizeof(Q8Block)));
}

// Work space of a kernel of packed weights: unpacked columns of one or two panels, and the sums of some tokens. Both stay in
// the first-level cache.
inline constexpr int64_t k_panel_cols = 256;
inline constexpr int64_t k_panel_tokens = 128;
inline constexpr int64_t k_panels_together = 2;  // at most
struct alignas(64) PanelScratch {
    struct Panel {
        std::byte units[k_panel_cols / 32 *
                        (512 + 4 * 64)];  // 16 codes a column, and at most 2 scales and 2 minima
        float sums[k_panel_tokens * 16];
    };
    Panel panels[k_panels_together];
};

// y[t][r] = scale * (row r of W) . (input row t), or added to y[t][r].
struct LinearArgs {
    const std::byte* weight;  // row 0; whole panels (panel/panel.h) if the kernel reads packed weights
    int64_t row_bytes;
    int64_t n_rows;
    int64_t cols;  // a multiple of the weight format's block
    float scale;
    const std::byte* input;  // in the layout of the kernel's Activation
    int64_t input_row_bytes;
    const int32_t* input_rows;  // token t is input row input_rows[t]; null: row t
    int64_t n_tokens;
    float* y;
    int64_t y_stride;  // floats from token t to token t + 1
    bool add;
    PanelScratch* scratch;  // of a kernel of packed weights
    // Weights that the caller reads after these, or null: the kernel prefetches their start.
    const std::byte* next_weight = nullptr;
    // True if the CPU's prefetcher does not follow the loads of a kernel of packed weights (prefetches_unrolled_loads).
    bool needs_requests = false;
};

struct LinearKernel {
    Activation activation;  // q8 for packed weights, f32 for rows of floats
    void (*run)(const LinearArgs& args);
};

// The kernels of some formats, indexed by Format; `run` is null for the others.
struct LinearKernels {
    LinearKernel by_format[k_format_count];
};
// The first family with a kernel for a format has it; null behind the last.
struct LinearKernelFamilies {
    const LinearKernels* family[12];
};

// y[t][r] = scale * (key r) . (query t), where query t is row query_rows[t] of `queries`.
struct ScoreArgs {
    const std::byte* keys;
    int64_t key_bytes;
    int64_t n_keys;
    int64_t cols;
    float scale;
    const float* queries;  // rows of `cols`
    // Used instead of `queries` if keys are codes: rows of `cols` codes from KvKernels::quantize_query, and a factor for each
    // row.
    const int16_t* query_codes;
    const float* query_scales;
    const int32_t* query_rows;
    int64_t n_queries;
    float* y;
    int64_t y_stride;
    float* tile;  // work space: score_tile_floats(cols)
    // The n_keys keys that the caller scores next, or null: the kernel prefetches them.
    const std::byte* next_keys = nullptr;
};
constexpr int64_t score_tile_floats(int64_t cols) {
    return 16 * ((cols + 15) / 16 * 16);
}

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
    // The n_rows rows that the caller sums next, or null: the kernel prefetches them.
    const std::byte* next_rows = nullptr;
};

struct SoftmaxTotals {
    float largest;  // the largest x before softmax_exp
    float sum;      // the sum of x after it
};

// The kernels of attention for a KV cache format.
struct KvKernels {
    Format format;
    void (*scores)(const ScoreArgs& args);
    // Converts a query to 16-bit codes and returns their factor. Null if keys are floats.
    float (*quantize_query)(const float* x, int64_t cols, int16_t* codes);
    void (*weighted_sum)(const WeightedSumArgs& args);
};

struct KernelTable {
    const char* name;  // that of the level (base/cpu_features.h)

    LinearKernelFamilies linear;  // each format that holds weights is in one of them

    // Quantises one row of `cols` floats to the layout above; cols is a multiple of 32.
    void (*quantize_q8)(const float* x, int64_t cols, std::byte* out);

    // h = x / sqrt(mean(x^2) + eps) * weight; h may be x.
    void (*rms_norm)(const float* x, int64_t n, const float* weight, float eps, float* h);
    // The two steps of rms_norm, with the same bits: the sum of x^2, then the rest with a given mean square.
    float (*sum_squares)(const float* x, int64_t n);
    void (*normalise)(const float* x, int64_t n, float mean_square, const float* weight, float eps, float* h);
    void (*sigmoid)(const float* x, int64_t n, float* y);                         // y may be x
    void (*silu_mul)(const float* gate, const float* up, int64_t n, float* out);  // out may be gate or up
    // The clamped activation of backend/experts.h; out may be gate or up.
    void (*clamped_silu_mul)(const float* gate, const float* up, int64_t n, float alpha, float limit,
                             float* out);
    void (*add_scaled)(const float* x, float factor, int64_t n, float* y);  // y += factor * x
    // x = exp(x - max(x)). Returns -infinity and 0 for n = 0.
    SoftmaxTotals (*softmax_exp)(float* x, int64_t n);
    KvKernels kv[5];
    void (*narrow_f16)(const float* x, int64_t n, std::byte* out);  // rounds to nearest even
};

// The table of each level is compiled in a folder of its own, if the build has the level (MINIM_CPU_LEVELS).
extern const KernelTable k_scalar_kernels;
extern const KernelTable k_avx2_kernels;
extern const KernelTable k_avx2_vnni_kernels;
extern const KernelTable k_avx512_kernels;
extern const KernelTable k_avx512_vbmi_kernels;
extern const KernelTable k_neon_dotprod_kernels;
extern const KernelTable k_neon_i8mm_kernels;

}  // namespace minim::cpu
