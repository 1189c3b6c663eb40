// SPDX-License-Identifier: Apache-2.0
#include "cpu/matrix_tile.h"

#include <algorithm>
#include <cassert>

#include "cpu/kernel_tables.h"
#include "panel/panel.h"

namespace minim::cpu {
namespace {

// The size of a tile of float rows, which stays in the first-level cache while all tokens are multiplied.
constexpr int64_t k_float_tile_bytes = 32 * 1024;
// The size of a tile of panels, which is read once: long sequential reads reach the full memory bandwidth.
constexpr int64_t k_panel_tile_bytes = 512 * 1024;
constexpr int64_t k_max_panel_tile_rows = 256;
// The least number of tiles for each thread, so that all end at about the same time.
constexpr int64_t k_thread_tiles = 16;

// Rows decoded to floats at a time: few enough to stay in the second-level cache.
constexpr int64_t k_decoded_rows = 8;

// Returns the maximum number of bytes that a panel takes. The widest format is Q8_0, with 34 bytes for 32 columns; a row header takes at
// most 4.
constexpr int64_t packed_panel_bytes(int64_t cols) {
    return round_up_64(panel::k_panel_rows * (cols + cols / 16 + 4));
}

// Decodes a few rows to floats at a time, then runs the kernel of float rows over all tokens.
void compute_decoded(const Machine& machine, const MatrixTile& tile, LinearArgs args, std::byte* scratch) {
    const FormatTraits& format = traits(tile.weight.format);
    auto* decoded = reinterpret_cast<float*>(scratch);
    const std::byte* rows = args.weight;
    args.weight = scratch;
    args.row_bytes = args.cols * static_cast<int64_t>(sizeof(float));
    for (int64_t done = 0; done < tile.count; done += args.n_rows) {
        args.n_rows = std::min(k_decoded_rows, tile.count - done);
        args.y = tile.y + done;
        for (int64_t r = 0; r < args.n_rows; ++r) {
            const std::byte* row = rows + (done + r) * tile.weight.row_bytes;
            format.decode_row(row, args.cols, decoded + r * args.cols);
        }
        linear_kernel(machine.kernels, Format::f32)->run(args);
    }
}

// Multiplies whole panels in place; other rows are first copied to a panel in scratch.
void compute_panels(const LinearKernel& kernel, const MatrixTile& tile, LinearArgs args, std::byte* scratch) {
    assert(tile.first % panel::k_panel_rows == 0);
    args.scratch = reinterpret_cast<PanelScratch*>(scratch);
    const int64_t packed_rows =
        tile.weight.packed ? tile.count / panel::k_panel_rows * panel::k_panel_rows : 0;
    if (packed_rows > 0) {
        args.n_rows = packed_rows;
        kernel.run(args);
    }
    std::byte* panel = scratch + round_up_64(sizeof(PanelScratch));
    const std::byte* rows = args.weight;
    float* y = args.y;
    args.next_weight = nullptr;
    for (int64_t done = packed_rows; done < tile.count; done += panel::k_panel_rows) {
        args.n_rows = std::min(panel::k_panel_rows, tile.count - done);
        panel::pack_panel(tile.weight.format, rows + done * args.row_bytes, args.row_bytes, args.n_rows,
                          args.cols, panel);
        args.weight = panel;
        args.y = y + done;
        kernel.run(args);
    }
}

}  // namespace

int64_t tile_scratch_bytes(int64_t cols) noexcept {
    const int64_t decoded = k_decoded_rows * cols * static_cast<int64_t>(sizeof(float));
    return round_up_64(std::max(decoded, round_up_64(sizeof(PanelScratch)) + packed_panel_bytes(cols)));
}

Activation activation_for(const KernelTable& kernels, Format format) noexcept {
    const LinearKernel* kernel = linear_kernel(kernels, format);
    return kernel == nullptr ? Activation::f32 : kernel->activation;
}

int64_t rows_of_tile(const Machine& machine, const backend::Matrix& weight, int64_t n_job_rows) noexcept {
    const int64_t row_bytes = std::max<int64_t>(weight.row_bytes, 1);
    int64_t rows = k_float_tile_bytes / row_bytes;
    int64_t step = panel::k_panel_rows;
    if (activation_for(machine.kernels, weight.format) == Activation::q8) {
        const int64_t share = n_job_rows / (k_thread_tiles * machine.pool.n_threads());
        rows = std::min({k_panel_tile_bytes / row_bytes, k_max_panel_tile_rows, share});
        if (rows >= k_panels_together * panel::k_panel_rows) step *= k_panels_together;
    }
    return std::max(rows / step * step, panel::k_panel_rows);
}

InputRows plain_rows(const float* x, int64_t n, int64_t cols) noexcept {
    InputRows input;
    input.data[static_cast<size_t>(Activation::f32)] = reinterpret_cast<const std::byte*>(x);
    input.row_bytes[static_cast<size_t>(Activation::f32)] = cols * static_cast<int64_t>(sizeof(float));
    input.n_tokens = n;
    return input;
}

InputRows rows_of(const InputRows& all, int64_t first, int64_t count) noexcept {
    assert(first + count <= all.n_tokens);
    InputRows part = all;
    part.n_tokens = count;
    if (all.rows != nullptr) {
        part.rows += first;
        return part;
    }
    for (size_t kind = 0; kind < k_activation_count; ++kind) {
        if (part.data[kind] != nullptr) part.data[kind] += first * part.row_bytes[kind];
    }
    return part;
}

void quantize_rows(const Machine& machine, Activation activation, const float* x, int64_t n, int64_t cols,
                   std::byte* out, InputRows& input) {
    const auto kind = static_cast<size_t>(activation);
    if (input.data[kind] != nullptr) return;
    const int64_t row_bytes = activation_row_bytes(activation, cols);
    const auto quantize = machine.kernels.quantize_q8;
    machine.pool.run(n, [&](int64_t i, int32_t) { quantize(x + i * cols, cols, out + i * row_bytes); });
    input.data[kind] = out;
    input.row_bytes[kind] = row_bytes;
}

void compute_tile(const Machine& machine, const MatrixTile& tile, const InputRows& input,
                  std::byte* scratch) {
    const LinearKernel* kernel = linear_kernel(machine.kernels, tile.weight.format);
    if (tile.exact && kernel != nullptr && kernel->activation != Activation::f32) kernel = nullptr;
    const auto kind = static_cast<size_t>(kernel == nullptr ? Activation::f32 : kernel->activation);
    const bool has_four_bits = 2 * tile.weight.row_bytes >= tile.weight.cols;
    const bool is_one = machine.needs_requests_of_one && input.n_tokens == 1 && has_four_bits;
    const LinearArgs args = {
        .weight = tile.weight.row(tile.first),
        .row_bytes = tile.weight.row_bytes,
        .n_rows = tile.count,
        .cols = tile.weight.cols,
        .scale = tile.weight.scale,
        .input = input.data[kind],
        .input_row_bytes = input.row_bytes[kind],
        .input_rows = input.rows,
        .n_tokens = input.n_tokens,
        .y = tile.y,
        .y_stride = tile.y_stride,
        .add = tile.add,
        .scratch = nullptr,
        .next_weight = tile.next_weight,
        .needs_requests = machine.needs_requests || is_one,
    };
    if (kernel == nullptr) {
        assert(!tile.weight.packed);
        compute_decoded(machine, tile, args, scratch);
    } else if (kernel->activation == Activation::f32) {
        kernel->run(args);
    } else {
        compute_panels(*kernel, tile, args, scratch);
    }
}

}  // namespace minim::cpu
