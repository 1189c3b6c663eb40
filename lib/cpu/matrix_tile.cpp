#include "cpu/matrix_tile.h"

#include <algorithm>

#include "cpu/kernel_tables.h"

namespace minim::cpu {
namespace {

constexpr int64_t k_tile_bytes = 32 * 1024;
constexpr int64_t k_max_tile_rows = 64;

// Floats of a few rows at a time, then the kernel of float rows over all tokens.
void compute_decoded(const Machine& machine, const MatrixTile& tile, LinearArgs args, float* decoded) {
    const FormatTraits& format = traits(tile.weight.format);
    args.weight = reinterpret_cast<const std::byte*>(decoded);
    args.row_bytes = args.cols * static_cast<int64_t>(sizeof(float));
    for (int64_t done = 0; done < tile.count; done += args.n_rows) {
        args.n_rows = std::min(k_decoded_rows, tile.count - done);
        args.y = tile.y + tile.first + done;
        for (int64_t r = 0; r < args.n_rows; ++r) {
            const std::byte* row = tile.weight.data + (tile.first + done + r) * tile.weight.row_bytes;
            format.decode_row(row, args.cols, decoded + r * args.cols);
        }
        machine.kernels.linear_f32.run(args);
    }
}

}  // namespace

Activation activation_for(const KernelTable& kernels, Format format) noexcept {
    const LinearKernel* kernel = linear_kernel(kernels, format);
    return kernel == nullptr ? Activation::f32 : kernel->activation;
}

int64_t rows_of_tile(const backend::Matrix& weight) noexcept {
    const int64_t rows = k_tile_bytes / std::max<int64_t>(weight.row_bytes, 1);
    return std::clamp<int64_t>(rows / 4 * 4, 4, k_max_tile_rows);
}

InputRows plain_rows(const float* x, int64_t n, int64_t cols) noexcept {
    InputRows input;
    input.data[static_cast<size_t>(Activation::f32)] = reinterpret_cast<const std::byte*>(x);
    input.row_bytes[static_cast<size_t>(Activation::f32)] = cols * static_cast<int64_t>(sizeof(float));
    input.n_tokens = n;
    return input;
}

void quantize_rows(const Machine& machine, Activation activation, const float* x, int64_t n, int64_t cols,
                   std::byte* out, InputRows& input) {
    const auto kind = static_cast<size_t>(activation);
    if (input.data[kind] != nullptr) return;
    const int64_t row_bytes = activation_layout(activation, cols).row_bytes;
    const auto quantize = machine.kernels.quantize_q8;
    machine.pool.run(n, [&](int64_t i, int32_t) { quantize(x + i * cols, cols, out + i * row_bytes); });
    input.data[kind] = out;
    input.row_bytes[kind] = row_bytes;
}

void compute_tile(const Machine& machine, const MatrixTile& tile, const InputRows& input, float* decoded) {
    const LinearKernel* kernel = linear_kernel(machine.kernels, tile.weight.format);
    if (tile.exact && kernel != nullptr && kernel->activation != Activation::f32) kernel = nullptr;
    const auto kind = static_cast<size_t>(kernel == nullptr ? Activation::f32 : kernel->activation);
    const LinearArgs args = {
        .weight = tile.weight.data + tile.first * tile.weight.row_bytes,
        .row_bytes = tile.weight.row_bytes,
        .n_rows = tile.count,
        .cols = tile.weight.cols,
        .scale = tile.weight.scale,
        .input = input.data[kind],
        .input_row_bytes = input.row_bytes[kind],
        .input_rows = input.rows,
        .n_tokens = input.n_tokens,
        .y = tile.y + tile.first,
        .y_stride = tile.y_stride,
        .add = tile.add,
    };
    if (kernel == nullptr) {
        compute_decoded(machine, tile, args, decoded);
    } else {
        kernel->run(args);
    }
}

}  // namespace minim::cpu
