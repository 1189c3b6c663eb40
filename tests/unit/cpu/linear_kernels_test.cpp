// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>

#include "base/half.h"
#include "cpu/kernel_tables.h"
#include "format/expand.h"
#include "panel/panel.h"
#include "support/catch.h"
#include "support/file_format.h"
#include "unit/cpu/support.h"
#include "unit/format/golden.h"

namespace minim::test {
namespace {

using cpu::Activation;
using cpu::LinearKernel;

// Returns every format that holds weights.
std::vector<Format> formats() {
    std::vector<Format> all;
    for (const FormatTraits& format : all_formats()) {
        if (format.decode_row != nullptr) all.push_back(format.format);
        if (const auto unpacked = unpacked_format(format.format)) all.push_back(*unpacked);
    }
    return all;
}

std::vector<Format> packed_formats() {
    std::vector<Format> packed = formats();
    std::erase_if(packed, takes_floats);
    return packed;
}

std::vector<int64_t> columns_of(Format format) {
    switch (traits(format).block_elems) {
        case 1:
            return {0, 1, 2, 15, 16, 17, 31, 32, 33, 255, 256, 512};
        case 32:
            return {0, 32, 64, 96, 160, 256, 352, 512};
        case 64:
            return {0, 64, 128, 192, 448, 512};
        case 128:
            return {0, 128, 256, 384, 640};
        default:
            return {0, 256, 512};
    }
}

// Returns the weights as the kernel reads them: its rows, or panels with the last one filled up.
std::vector<std::byte> weights_for(const LinearKernel& kernel, const TestMatrix& w) {
    if (kernel.activation == Activation::f32) return w.bytes;
    const int64_t panel_bytes = panel::k_panel_rows * w.view.row_bytes;
    const int64_t n_panels = (w.view.rows + panel::k_panel_rows - 1) / panel::k_panel_rows;
    std::vector<std::byte> panels(static_cast<size_t>(n_panels * panel_bytes));
    for (int64_t p = 0; p < n_panels; ++p) {
        const int64_t first = p * panel::k_panel_rows;
        panel::pack_panel(w.view.format, w.view.data + first * w.view.row_bytes, w.view.row_bytes,
                          std::min(panel::k_panel_rows, w.view.rows - first), w.view.cols,
                          panels.data() + p * panel_bytes);
    }
    return panels;
}

// Returns the results of one kernel: [n_tokens][n_rows]. Checks that they are the same with and without prefetch requests.
std::vector<float> run(const cpu::KernelTable& kernels, const TestMatrix& w,
                       const std::vector<std::byte>& input, int64_t n_tokens, float scale = 1.0F,
                       const std::vector<float>& add_to = {}) {
    const LinearKernel& kernel = *cpu::linear_kernel(kernels, w.view.format);
    std::vector<float> y = add_to;
    y.resize(static_cast<size_t>(n_tokens * w.view.rows));
    std::vector<float> requested = y;
    const std::vector<std::byte> weights = weights_for(kernel, w);
    const auto scratch = std::make_unique<cpu::PanelScratch>();
    cpu::LinearArgs args = {.weight = weights.data(),
                            .row_bytes = w.view.row_bytes,
                            .n_rows = w.view.rows,
                            .cols = w.view.cols,
                            .scale = scale,
                            .input = input.data(),
                            .input_row_bytes = cpu::activation_row_bytes(kernel.activation, w.view.cols),
                            .input_rows = nullptr,
                            .n_tokens = n_tokens,
                            .y = y.data(),
                            .y_stride = w.view.rows,
                            .add = !add_to.empty(),
                            .scratch = scratch.get()};
    kernel.run(args);
    args.y = requested.data();
    args.needs_requests = true;
    kernel.run(args);
    REQUIRE(same_bits(requested, y));
    return y;
}

// Compares all instruction sets with each other, bit for bit, and with exact arithmetic.
void check_all(Format format, const TestMatrix& w, const std::vector<float>& x, int64_t n_tokens) {
    const Activation activation = cpu::linear_kernel(cpu::k_scalar_kernels, format)->activation;
    const auto input = input_rows(cpu::k_scalar_kernels, activation, x, n_tokens, w.view.cols);
    const std::vector<float> first = run(cpu::k_scalar_kernels, w, input, n_tokens);
    for (const cpu::KernelTable* kernels : kernel_tables()) {
        REQUIRE(same_bits(run(*kernels, w, input, n_tokens), first));
    }
    const int64_t row_size = cpu::activation_row_bytes(activation, w.view.cols);
    for (int64_t r = 0; r < w.view.rows; ++r) {
        const std::vector<float> row = w.decoded_row(r);
        for (int64_t t = 0; t < n_tokens; ++t) {
            const Dot exact =
                exact_dot(row, dequantised(activation, input.data() + t * row_size, w.view.cols));
            const auto got = static_cast<double>(first[static_cast<size_t>(t * w.view.rows + r)]);
            REQUIRE(std::abs(got - exact.value) <= 2e-6 * exact.magnitude);
        }
    }
}

// Returns the golden activation bytes in our layout. Q8_0 and Q8_1 have an F16 scale for 32 numbers, Q8_K a float scale
// for 256.
//
// Neighbouring codes of a golden row may add up to more than kernels allow (cpu/generic/quantize.h). So each golden row
// becomes two rows: one has its even columns, the other its odd ones, and the remaining columns are zeros.
std::vector<std::byte> input_from_golden(const GoldenFile& file, const GoldenFile& type, int64_t cols) {
    const std::string kind = type.entry().at("act_type");
    const auto bytes = file.section<std::byte>(kind);
    const bool q8_k = kind == "Q8_K";
    const int64_t block = q8_k ? 256 : 32;
    const auto block_bytes = static_cast<int64_t>(bytes.size()) / (cols / block);  // 292, or 296 in the fork
    const int64_t row_bytes = cpu::activation_row_bytes(Activation::q8, cols);
    std::vector<std::byte> rows(static_cast<size_t>(2 * row_bytes));
    for (int64_t b = 0; b < cols / 32; ++b) {
        const std::byte* from = bytes.data() + b * 32 / block * block_bytes;
        const int64_t header = q8_k ? block_bytes - 256 - 32 : block_bytes - 32;
        for (int64_t parity = 0; parity < 2; ++parity) {
            cpu::Q8Block out;
            uint16_t half = 0;
            std::memcpy(&out.scale, from, sizeof(out.scale));
            std::memcpy(&half, from, sizeof(half));
            if (!q8_k) out.scale = f16_to_float(half);
            std::memcpy(out.code, from + header + b * 32 % block, 32);
            for (size_t i = 0; i < 32; i += 2) out.code[i + (parity == 0 ? 1 : 0)] = 0;
            for (size_t g = 0; g < 2; ++g) {
                const int sum = std::accumulate(out.code + 16 * g, out.code + 16 * g + 16, 0);
                out.sum[g] = static_cast<int16_t>(sum);
                out.scaled_sum[g] = out.scale * static_cast<float>(sum);
            }
            out.scaled_total = out.scaled_sum[0] + out.scaled_sum[1];
            out.unsigned_offset = -128 * (out.sum[0] + out.sum[1]);
            std::memcpy(rows.data() + parity * row_bytes + b * static_cast<int64_t>(sizeof(out)), &out,
                        sizeof(out));
        }
    }
    return rows;
}

}  // namespace

TEST_CASE("linear kernels agree with exact dot products and with each other over odd shapes") {
    // An emulated CPU computes a quarter of the shapes: each number of tokens with one of the rows, another for other columns.
    const bool is_emulated = std::getenv("MINIM_TEST_EMULATED") != nullptr;
    for (const Format format : formats()) {
        int64_t n_shapes = 0;
        for (const int64_t cols : columns_of(format)) {
            for (const int64_t n_tokens : {1, 2, 3, 4, 6, 8, 13, 14, 15}) {
                ++n_shapes;
                for (const int64_t n_rows : {1, 7, 16, 37}) {
                    if (is_emulated && n_shapes++ % 4 != 0) continue;
                    INFO(traits(format).name << " " << n_rows << " x " << cols << ", tokens " << n_tokens);
                    Random random(static_cast<uint32_t>(cols * 100 + n_tokens * 10 + n_rows));
                    const TestMatrix w(format, n_rows, cols, random);
                    check_all(format, w, random.normal(n_tokens * cols), n_tokens);
                }
            }
        }
    }
}

TEST_CASE("more tokens than have their sums in scratch at once give the same results") {
    const int64_t n_tokens = 2 * cpu::k_panel_tokens + 3;
    for (const Format format : {Format::q8_0, Format::q4_k, Format::iq4_xs, Format::iq5_k}) {
        Random random(4);
        const TestMatrix w(format, 17, 512, random);
        const std::vector<float> x = random.normal(n_tokens * 512);
        for (const cpu::KernelTable* kernels : kernel_tables()) {
            INFO(kernels->name << " " << traits(format).name);
            const LinearKernel& kernel = *cpu::linear_kernel(*kernels, format);
            const auto input = input_rows(*kernels, kernel.activation, x, n_tokens, 512);
            const auto row_size = static_cast<size_t>(cpu::activation_row_bytes(kernel.activation, 512));
            const std::vector<float> y = run(*kernels, w, input, n_tokens);
            for (size_t t = 0; t < static_cast<size_t>(n_tokens); ++t) {
                const std::vector<std::byte> one(input.data() + t * row_size,
                                                 input.data() + (t + 1) * row_size);
                REQUIRE(same_bits(std::span(y).subspan(17 * t, 17), run(*kernels, w, one, 1)));
            }
        }
    }
}

TEST_CASE("linear kernels of no rows or no tokens write nothing") {
    for (const Format format : formats()) {
        for (const cpu::KernelTable* kernels : kernel_tables()) {
            Random random(1);
            const TestMatrix none(format, 0, 256, random);
            const TestMatrix some(format, 3, 256, random);
            const LinearKernel& kernel = *cpu::linear_kernel(*kernels, format);
            const auto input = input_rows(*kernels, kernel.activation, random.normal(256), 1, 256);
            CHECK(run(*kernels, none, input, 1).empty());
            CHECK(run(*kernels, some, input, 0).empty());
        }
    }
}

TEST_CASE("codes and weights at their extremes do not saturate") {
    // All products have one sign and full size: all inputs are +127 or -127, and the bytes of a block are all alike,
    // except for the numbers at its front and back, which contain the scale in most formats.
    for (const Format format : packed_formats()) {
        const panel::PanelShape shape = panel::panel_shape(format);
        const auto block = static_cast<size_t>(traits(format).block_bytes);
        const bool is_unpacked = file_format(format) != format;
        // The front has an F32 scale, and the zero point behind it if there is one.
        const bool has_words = format == Format::int4_w32 || format == Format::int8_w32;
        const size_t front = is_unpacked ? sizeof(float)
                             : has_words ? 8
                                         : static_cast<size_t>(shape.front_bytes);
        const auto back = static_cast<size_t>(shape.back_bytes);
        for (const int fill : {0x00, 0x7F, 0x80, 0xFF, 0x0F, 0xF0, 0x33}) {
            if (format == Format::iq1_m && fill >= 0xF0) continue;  // the scale would be NaN or infinite
            for (const float sign : {1.0F, -1.0F, 0.0F}) {
                Random random(5);
                TestMatrix w(format, 2, 512, random);
                const auto header = static_cast<size_t>(traits(format).row_header_bytes);
                for (size_t r = 0; r < 2; ++r) {
                    std::byte* row = w.bytes.data() + r * static_cast<size_t>(w.view.row_bytes);
                    for (size_t at = header; at < static_cast<size_t>(w.view.row_bytes); at += block) {
                        std::fill(row + at + front, row + at + block - back, static_cast<std::byte>(fill));
                    }
                }
                std::vector<float> x(512, 1.0F);
                for (size_t i = 0; i < x.size(); ++i)
                    x[i] = sign != 0.0F ? sign : (i % 2 == 0 ? 1.0F : -1.0F);
                INFO(traits(format).name << " fill " << fill << " sign " << sign);
                check_all(format, w, x, 1);
                x.insert(x.end(), x.begin(), x.end());
                check_all(format, w, x, 2);
            }
        }
    }
}

TEST_CASE("scales that are infinite or NaN reach the result, equally on every instruction set") {
    for (const Format format : {Format::q8_0, Format::q4_k, Format::q6_k}) {
        for (const uint16_t bits : {uint16_t{0x7C00}, uint16_t{0x7E00}, uint16_t{0x0001}}) {
            Random random(6);
            const TestMatrix w(format, 1, 256, random);
            std::byte* field = const_cast<std::byte*>(w.view.data) + (format == Format::q6_k ? 208 : 0);
            std::memcpy(field, &bits, sizeof(bits));
            const Activation activation = cpu::linear_kernel(cpu::k_scalar_kernels, format)->activation;
            const auto input = input_rows(cpu::k_scalar_kernels, activation, random.normal(256), 1, 256);
            const auto first = run(cpu::k_scalar_kernels, w, input, 1);
            CHECK(std::isfinite(first[0]) == (bits == 1));
            for (const cpu::KernelTable* kernels : kernel_tables()) {
                CHECK(same_bits(run(*kernels, w, input, 1), first));
            }
        }
    }
}

TEST_CASE("kernels reproduce the golden dot products from the golden activations") {
    for (const Format format : packed_formats()) {
        if (traits(format).gguf_type == k_no_gguf_type) continue;
        const GoldenFile golden = golden_type(std::string(traits(format).name));
        const GoldenFile activation_file(
            golden_index().at("activations").at(golden.entry().at("activation_file").get<std::string>()));
        const auto raw = golden.section<std::byte>("raw");
        const auto dot_q8 = golden.section<double>("dot_q8");
        const auto dot_abs = golden.section<double>("dot_abs");
        const int64_t rows = golden.number("rows");
        const int64_t cols = golden.number("cols");
        Random random(1);
        TestMatrix w(format, rows, cols, random);
        std::copy(raw.begin(), raw.end(), w.bytes.begin());
        for (const cpu::KernelTable* kernels : kernel_tables()) {
            const auto input = input_from_golden(activation_file, golden, cols);
            const auto y = run(*kernels, w, input, 2);
            for (size_t r = 0; r < dot_q8.size(); ++r) {
                INFO(kernels->name << " " << traits(format).name << " row " << r);
                const double sum = static_cast<double>(y[r]) + static_cast<double>(y[dot_q8.size() + r]);
                CHECK(std::abs(sum - dot_q8[r]) <= 2e-6 * dot_abs[r]);
            }
        }
    }
}

TEST_CASE("unpacked codebooks give the bits of the packed ones") {
    for (const FormatTraits& format : all_formats()) {
        const auto unpacked = unpacked_format(format.format);
        if (!unpacked) continue;
        INFO(format.name);
        Random random(12);
        const TestMatrix w(format.format, 37, 768, random);
        Random same_random(12);
        const TestMatrix x(*unpacked, 37, 768, same_random);
        const std::vector<float> h = random.normal(9 * 768);
        for (const cpu::KernelTable* kernels : kernel_tables()) {
            for (const int64_t n : {1, 2, 9}) {
                const auto input = input_rows(*kernels, Activation::q8,
                                              std::span(h).first(static_cast<size_t>(n * 768)), n, 768);
                CHECK(same_bits(run(*kernels, x, input, n), run(*kernels, w, input, n)));
            }
        }
    }
}

TEST_CASE("the tensor's scale and the addition to y are applied to the whole dot product") {
    for (const Format format : formats()) {
        Random random(8);
        const TestMatrix w(format, 5, 256, random);
        const std::vector<float> x = random.normal(3 * 256);
        const std::vector<float> start = random.normal(15);
        for (const cpu::KernelTable* kernels : kernel_tables()) {
            const LinearKernel& kernel = *cpu::linear_kernel(*kernels, format);
            const auto input = input_rows(*kernels, kernel.activation, x, 3, 256);
            const auto plain = run(*kernels, w, input, 3);
            const auto scaled = run(*kernels, w, input, 3, 0.37F);
            const auto added = run(*kernels, w, input, 3, 0.37F, start);
            for (size_t i = 0; i < plain.size(); ++i) {
                CHECK(scaled[i] == plain[i] * 0.37F);
                CHECK(added[i] == start[i] + plain[i] * 0.37F);
            }
        }
    }
}

TEST_CASE("a list of input rows picks them in its order") {
    for (const Format format : formats()) {
        Random random(9);
        const TestMatrix w(format, 3, 512, random);
        const std::vector<float> x = random.normal(4 * 512);
        std::vector<int32_t> rows(21);
        for (int32_t& row : rows) row = static_cast<int32_t>(random.below(4));
        for (const cpu::KernelTable* kernels : kernel_tables()) {
            const LinearKernel& kernel = *cpu::linear_kernel(*kernels, format);
            const auto input = input_rows(*kernels, kernel.activation, x, 4, 512);
            const auto all = run(*kernels, w, input, 4);
            std::vector<float> y(3 * rows.size());
            const std::vector<std::byte> weights = weights_for(kernel, w);
            const auto scratch = std::make_unique<cpu::PanelScratch>();
            kernel.run({.weight = weights.data(),
                        .row_bytes = w.view.row_bytes,
                        .n_rows = 3,
                        .cols = 512,
                        .scale = 1.0F,
                        .input = input.data(),
                        .input_row_bytes = cpu::activation_row_bytes(kernel.activation, 512),
                        .input_rows = rows.data(),
                        .n_tokens = static_cast<int64_t>(rows.size()),
                        .y = y.data(),
                        .y_stride = 3,
                        .add = false,
                        .scratch = scratch.get()});
            for (size_t i = 0; i < y.size(); ++i)
                REQUIRE(y[i] == all[static_cast<size_t>(rows[i / 3]) * 3 + i % 3]);
        }
    }
}

}  // namespace minim::test
