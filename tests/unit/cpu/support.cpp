// SPDX-License-Identifier: Apache-2.0
#include "unit/cpu/support.h"

#include <cmath>
#include <cstring>

#include "base/half.h"
#include "cpu/kernel_tables.h"
#include "format/expand.h"
#include "support/file_format.h"
#include "unit/format/golden.h"

namespace minim::test {
namespace {

void put_f16(std::byte* at, float value) {
    const uint16_t bits = float_to_f16(value);
    std::memcpy(at, &bits, sizeof(bits));
}

// Fills a block with random bytes and sets its float fields to sane numbers. Returns false for other formats, which take rows
// of the golden files.
bool fill_block(Format format, std::byte* block, Random& random) {
    const float d =
        static_cast<float>(random.below(1000) + 1) / 1000.0F * (random.below(2) == 0 ? 1.0F : -1.0F);
    switch (format) {
        case Format::q8_0:
        case Format::iq4_nl:
            put_f16(block, d / 64.0F);
            return true;
        case Format::q4_k:
            put_f16(block, d / 256.0F);
            put_f16(block + 2, static_cast<float>(random.below(1000)) / 32000.0F);
            return true;
        case Format::q6_k:
            put_f16(block + 208, d / 2048.0F);
            return true;
        case Format::iq4_xs:
            put_f16(block, d / 1024.0F);
            return true;
        case Format::fp8_e4m3_b128: {
            const float scale = d / 64.0F;
            std::memcpy(block, &scale, sizeof(scale));
            for (int e = 0; e < 128; ++e)
                if ((block[4 + e] & std::byte{0x7F}) == std::byte{0x7F}) block[4 + e] = std::byte{0x7E};
            return true;
        }
        // In formats with zero points, the sign bit of a scale is a bit of the zero points.
        case Format::int4_s64:
        case Format::int4_s128:
            put_f16(block, d / 8.0F);
            return true;
        case Format::int4_z32:
        case Format::int4_z64:
        case Format::int4_z128:
            put_f16(block, d / 8.0F);
            put_f16(block + 2, static_cast<float>(random.below(1000)) / -8000.0F);
            return true;
        case Format::int8_s64:
        case Format::int8_s128:
        case Format::int8_z32:
        case Format::int8_z64:
        case Format::int8_z128:
            put_f16(block, d / 128.0F);
            return true;
        case Format::int4_row:
        case Format::int8_row:
            return true;
        case Format::int4_w32: {
            const float scale = d / 8.0F;
            const auto zero = static_cast<uint32_t>(random.below(17));
            std::memcpy(block, &scale, sizeof(scale));
            std::memcpy(block + 4, &zero, sizeof(zero));
            return true;
        }
        case Format::int8_w32: {
            const float scale = d / 128.0F;
            const auto zero = static_cast<int32_t>(random.below(257)) - 128;
            std::memcpy(block, &scale, sizeof(scale));
            std::memcpy(block + 4, &zero, sizeof(zero));
            return true;
        }
        case Format::mxfp8:
            block[0] = static_cast<std::byte>(118 + random.below(6));
            for (int e = 0; e < 32; ++e)
                if ((block[1 + e] & std::byte{0x7F}) == std::byte{0x7F}) block[1 + e] = std::byte{0x7E};
            return true;
        default:
            return false;
    }
}

void fill_floats(Format format, std::vector<std::byte>& bytes, Random& random) {
    const auto size = static_cast<size_t>(traits(format).block_bytes);
    const std::vector<float> values = random.normal(static_cast<int64_t>(bytes.size() / size));
    for (size_t i = 0; i < values.size(); ++i) {
        const uint16_t narrow = format == Format::f16 ? float_to_f16(values[i]) : float_to_bf16(values[i]);
        std::memcpy(bytes.data() + i * size, size == 4 ? static_cast<const void*>(&values[i]) : &narrow,
                    size);
    }
}

void fill_from_golden(Format format, TestMatrix& matrix, Random& random) {
    const GoldenFile golden = golden_type(std::string(traits(format).name));
    const auto raw = golden.section<std::byte>("raw");
    // The last rows come from an encoder; the others try the extremes of scales.
    const int64_t n_plain = golden.number("gauss_rows");
    const int64_t first_plain = golden.number("rows") - n_plain;
    const int64_t header = traits(format).row_header_bytes;
    const int64_t block_bytes = traits(format).block_bytes;
    const int64_t n_blocks = golden.number("cols") / traits(format).block_elems;
    const auto source_row = [&] {
        return (first_plain + random.below(n_plain)) * golden.number("row_bytes");
    };
    std::byte* to = matrix.bytes.data();
    const auto copy = [&](int64_t from, int64_t count) {
        std::memcpy(to, raw.data() + from, static_cast<size_t>(count));
        to += count;
    };
    for (int64_t r = 0; r < matrix.view.rows; ++r) {
        copy(source_row(), header);
        for (int64_t b = 0; b < matrix.view.cols / traits(format).block_elems; ++b) {
            copy(source_row() + header + random.below(n_blocks) * block_bytes, block_bytes);
        }
    }
}

}  // namespace

std::vector<const cpu::KernelTable*> kernel_tables() {
    std::vector<const cpu::KernelTable*> tables;
    for (const CpuLevel level : cpu_levels()) {
        const cpu::KernelTable* table = &cpu::kernels_for(level);
        if (tables.empty() || tables.back() != table) tables.push_back(table);
    }
    return tables;
}

std::vector<float> Random::normal(int64_t count, float scale) {
    std::normal_distribution<float> distribution(0.0F, scale);
    std::vector<float> values(static_cast<size_t>(count));
    for (float& value : values) value = distribution(engine_);
    return values;
}

TestMatrix::TestMatrix(Format format, int64_t rows, int64_t cols, Random& random) {
    uint64_t row_size = 0;
    if (!row_bytes(format, static_cast<uint64_t>(cols), row_size)) throw std::out_of_range("columns");
    bytes.resize(static_cast<size_t>(rows) * row_size);
    view = {.data = bytes.data(),
            .format = format,
            .rows = rows,
            .cols = cols,
            .row_bytes = static_cast<int64_t>(row_size)};
    if (traits(format).block_elems == 1) {
        fill_floats(format, bytes, random);
        return;
    }
    if (const Format of_file = file_format(format); of_file != format) {
        const TestMatrix source(of_file, rows, cols, random);
        expand_rows(of_file, source.view.data, rows, source.view.row_bytes, cols, bytes.data());
        return;
    }
    for (std::byte& byte : bytes) byte = random.byte();
    const FormatTraits& shape = traits(format);
    for (int64_t r = 0; r < rows; ++r) {
        std::byte* row = bytes.data() + r * view.row_bytes;
        if (shape.row_header_bytes == 4) {
            const float scale = static_cast<float>(random.below(1000) - 500) / 8000.0F;
            std::memcpy(row, &scale, sizeof(scale));
        }
        for (int64_t at = shape.row_header_bytes; at < view.row_bytes; at += shape.block_bytes) {
            if (fill_block(format, row + at, random)) continue;
            fill_from_golden(format, *this, random);
            return;
        }
    }
}

std::vector<float> TestMatrix::decoded_row(int64_t r) const {
    std::vector<float> row(static_cast<size_t>(view.cols));
    traits(view.format).decode_row(view.data + r * view.row_bytes, view.cols, row.data());
    return row;
}

bool same_bits(float a, float b) {
    return (std::isnan(a) && std::isnan(b)) || float_to_bits(a) == float_to_bits(b);
}

bool same_bits(std::span<const float> a, std::span<const float> b) {
    if (a.size() != b.size()) return false;
    for (size_t i = 0; i < a.size(); ++i) {
        if (!same_bits(a[i], b[i])) return false;
    }
    return true;
}

std::vector<double> dequantised(cpu::Activation activation, const std::byte* row, int64_t cols) {
    std::vector<double> values(static_cast<size_t>(cols));
    for (int64_t i = 0; i < cols; ++i) {
        if (activation == cpu::Activation::f32) {
            float value = 0.0F;
            std::memcpy(&value, row + i * 4, sizeof(value));
            values[static_cast<size_t>(i)] = static_cast<double>(value);
            continue;
        }
        cpu::Q8Block block;
        std::memcpy(&block, row + i / 32 * static_cast<int64_t>(sizeof(block)), sizeof(block));
        values[static_cast<size_t>(i)] =
            static_cast<double>(block.code[i % 32]) * static_cast<double>(block.scale);
    }
    return values;
}

std::vector<std::byte> input_rows(const cpu::KernelTable& kernels, cpu::Activation activation,
                                  std::span<const float> x, int64_t n, int64_t cols) {
    const int64_t row_size = cpu::activation_row_bytes(activation, cols);
    std::vector<std::byte> rows(static_cast<size_t>(n * row_size));
    for (int64_t i = 0; i < n; ++i) {
        const float* from = x.data() + i * cols;
        std::byte* to = rows.data() + i * row_size;
        switch (activation) {
            case cpu::Activation::f32:
                if (cols > 0) std::memcpy(to, from, static_cast<size_t>(row_size));
                break;
            case cpu::Activation::q8:
                kernels.quantize_q8(from, cols, to);
                break;
        }
    }
    return rows;
}

Dot exact_dot(std::span<const float> w, std::span<const double> a) {
    Dot dot;
    for (size_t i = 0; i < w.size(); ++i) {
        const double product = static_cast<double>(w[i]) * a[i];
        dot.value += product;
        dot.magnitude += std::abs(product);
    }
    return dot;
}

Dot exact_dot(std::span<const float> w, std::span<const float> a) {
    return exact_dot(w, std::vector<double>(a.begin(), a.end()));
}

}  // namespace minim::test
