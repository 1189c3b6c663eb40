// SPDX-License-Identifier: Apache-2.0
// The tile kernel (cuda/fast/linear_tile.h) and its inputs, in both sizes: products of every packed format, of F16, BF16 and FP8, and
// their experts against the reference, which multiplies floats. A row's bits must be the same in every batch.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/half.h"
#include "cuda/fast/half_inputs.h"
#include "cuda/fast/operations.h"
#include "cuda/runtime.h"
#include "cuda/views.h"
#include "format/blocks.h"
#include "gpu/fixture.h"
#include "gpu/launch_paths.h"
#include "gpu/models.h"
#include "gpu/support.h"
#include "panel/panel.h"
#include "support/catch.h"
#include "unit/cpu/large_inputs.h"

namespace minim::test {
namespace {

using backend::Arithmetic;
using backend::ExpertPlace;
using backend::ExpertStack;
using backend::ExpertWeights;
using backend::LinearTask;
using backend::Matrix;
using cuda::fast::HalfInputs;
using cuda::fast::HalfKind;
using cuda::fast::TileSize;

// The sizes that the device has room for.
std::vector<TileSize> tile_sizes() {
    std::vector<TileSize> sizes = {TileSize::small};
    if (cuda::fast::tile_size(cuda::runtime::block_shared_bytes(0)) == TileSize::large)
        sizes.push_back(TileSize::large);
    return sizes;
}

const char* name_of(TileSize size) {
    return size == TileSize::large ? "large tiles" : "small tiles";
}

HalfInputs room_for(Fixture& f, int64_t n, int64_t cols, TileSize size, HalfKind kind) {
    return {f.put(std::vector<uint16_t>(static_cast<size_t>(n * cols))),
            f.put(std::vector<float>(static_cast<size_t>(n * cuda::fast::n_factors(cols, size)), NAN)), kind};
}

HalfInputs halved(Fixture& f, const std::vector<float>& x, int64_t n, int64_t cols, TileSize size,
                  HalfKind kind = HalfKind::packed) {
    const HalfInputs out = room_for(f, n, cols, size, kind);
    const float* rows = f.put(x);
    f.device->synchronize(*f.stream);
    cuda::fast::halve_rows(nullptr, rows, n, cols, size, out);
    f.device->synchronize(*f.stream);
    return out;
}

std::vector<float> rows_of(const std::vector<float>& all, int64_t first, int64_t count, int64_t width) {
    const auto begin = all.begin() + first * width;
    return {begin, begin + count * width};
}

// Two matrices of a format that one launch multiplies; the products of the second one are added to what is there.
struct TwoMatrices {
    static constexpr int64_t k_few = 37;    // two panels and rows that are not packed
    static constexpr int64_t k_many = 112;  // seven panels, no whole tile
    static constexpr int64_t k_packed = 32;

    TwoMatrices(Fixture& fixture, Format format, Random& random)
        : f(fixture),
          cols(512 + (traits(format).block_elems < 256 ? traits(format).block_elems : 0)),
          few(format, k_few, cols, random),
          many(format, k_many, cols, random),
          few_on_device(f.put_packed(few)),
          many_on_device(f.put_packed(many)) {
        many.view.scale = many_on_device.scale = 0.75F;
    }
    // Returns the products of both with n rows, one after the other, without the rows that are not packed.
    std::vector<float> on_device(const std::vector<float>& x, int64_t n, TileSize size) {
        const HalfInputs input = halved(f, x, n, cols, size);
        const std::vector<float> before(static_cast<size_t>(n * k_many), 0.25F);
        float* y_few = f.put(std::vector<float>(static_cast<size_t>(n * k_few), -1.0F));
        float* y_many = f.put(before);
        cuda::fast::Products products = {};
        products.format = few.view.format;
        products.cols = cols;
        products.row_bytes = few.view.row_bytes;
        products.count = 2;
        const Matrix* matrix[] = {&few_on_device, &many_on_device};
        for (int i = 0; i < 2; ++i) {
            products.weight[i] = reinterpret_cast<const uint8_t*>(matrix[i]->data);
            products.rows[i] = i == 0 ? k_packed : k_many;
            products.y_stride[i] = matrix[i]->rows;
            products.scale[i] = matrix[i]->scale;
            products.y[i] = i == 0 ? y_few : y_many;
            products.add[i] = i == 1;
        }
        cuda::fast::linear_tile(nullptr, products, input, n, size);
        f.device->synchronize(*f.stream);
        const std::vector<float> of_few = f.get(y_few, static_cast<size_t>(n * k_few));
        const std::vector<float> of_many = f.get(y_many, static_cast<size_t>(n * k_many));
        std::vector<float> all;
        for (int64_t i = 0; i < n; ++i) {
            for (int64_t r = k_packed; r < k_few; ++r)
                CHECK(of_few[static_cast<size_t>(i * k_few + r)] == -1.0F);
            for (int64_t r = 0; r < k_packed; ++r) all.push_back(of_few[static_cast<size_t>(i * k_few + r)]);
            for (int64_t r = 0; r < k_many; ++r) all.push_back(of_many[static_cast<size_t>(i * k_many + r)]);
        }
        return all;
    }
    std::vector<float> on_host(const std::vector<float>& x, int64_t n) {
        std::vector<float> y_few(static_cast<size_t>(n * k_few));
        std::vector<float> y_many(static_cast<size_t>(n * k_many), 0.25F);
        const LinearTask tasks[] = {{&few.view, y_few.data(), false}, {&many.view, y_many.data(), true}};
        f.reference->linear(*f.none, x.data(), n, tasks);
        std::vector<float> all;
        for (int64_t i = 0; i < n; ++i) {
            for (int64_t r = 0; r < k_packed; ++r) all.push_back(y_few[static_cast<size_t>(i * k_few + r)]);
            for (int64_t r = 0; r < k_many; ++r) all.push_back(y_many[static_cast<size_t>(i * k_many + r)]);
        }
        return all;
    }
    static constexpr int64_t k_width = k_packed + k_many;

    Fixture& f;
    int64_t cols;
    TestMatrix few;
    TestMatrix many;
    Matrix few_on_device;
    Matrix many_on_device;
};

constexpr Format k_row_formats[] = {Format::f16, Format::bf16, Format::fp8_e4m3_b128};

// Returns the kind of inputs for a matrix of the format, which is packed if it has panels.
HalfKind kind_for(Format format) {
    return cuda::fast::half_kind(format, cuda::fast::has_panels(format));
}

// Returns x, of ordinary size, rounded to the halves of inputs.
std::vector<float> rounded_to(HalfKind kind, std::vector<float> x) {
    for (float& value : x)
        value =
            kind == HalfKind::bf16 ? bf16_to_float(float_to_bf16(value)) : f16_to_float(float_to_f16(value));
    return x;
}

// Multiplies the weights of row r, BF16 or FP8, by two to the power of exponents[r % size]. Of FP8 the scale of a row's first block is
// smaller by 2^9 than those of the others.
void scale_rows(TestMatrix& matrix, const std::vector<int>& exponents) {
    for (int64_t r = 0; r < matrix.view.rows; ++r) {
        std::byte* row = matrix.bytes.data() + r * matrix.view.row_bytes;
        const int exponent = exponents[static_cast<size_t>(r) % exponents.size()];
        if (matrix.view.format == Format::bf16) {
            for (int64_t c = 0; c < matrix.view.cols; ++c) {
                uint16_t half = 0;
                std::memcpy(&half, row + 2 * c, sizeof(half));
                half = float_to_bf16(std::ldexp(bf16_to_float(half), exponent));
                std::memcpy(row + 2 * c, &half, sizeof(half));
            }
            continue;
        }
        for (int64_t at = 0; at < matrix.view.row_bytes; at += FP8_E4M3_B128::block_bytes) {
            float scale = 0.0F;
            std::memcpy(&scale, row + at + FP8_E4M3_B128::scale_at, sizeof(scale));
            scale = std::ldexp(scale, exponent - (at == 0 ? 9 : 0));
            std::memcpy(row + at + FP8_E4M3_B128::scale_at, &scale, sizeof(scale));
        }
    }
}

// Returns the products of a matrix that is not packed, added to `before` if that is not 0. They are written between others, which stay.
std::vector<float> products_of_rows(Fixture& f, const Matrix& weight, const std::vector<float>& x, int64_t n,
                                    TileSize size, float before) {
    const int64_t stride = weight.rows + 3;
    const HalfInputs input = halved(f, x, n, weight.cols, size, kind_for(weight.format));
    float* y = f.put(std::vector<float>(static_cast<size_t>(n * stride), before));
    cuda::fast::Products one = {};
    one.format = weight.format;
    one.cols = weight.cols;
    one.row_bytes = weight.row_bytes;
    one.count = 1;
    one.weight[0] = reinterpret_cast<const uint8_t*>(weight.data);
    one.rows[0] = weight.rows;
    one.y_stride[0] = stride;
    one.scale[0] = weight.scale;
    one.y[0] = y;
    one.add[0] = before != 0.0F;
    cuda::fast::linear_tile(nullptr, one, input, n, size);
    f.device->synchronize(*f.stream);
    const std::vector<float> all = f.get(y, static_cast<size_t>(n * stride));
    std::vector<float> products;
    for (int64_t i = 0; i < n; ++i) {
        const float* row = all.data() + i * stride;
        products.insert(products.end(), row, row + weight.rows);
        for (int64_t r = weight.rows; r < stride; ++r) CHECK(row[r] == before);
    }
    return products;
}

std::vector<Format> packed_formats() {
    std::vector<Format> formats;
    for_each_block(AllBlocks{}, [&](auto block) {
        if (cuda::fast::has_panels(decltype(block)::format)) formats.push_back(decltype(block)::format);
    });
    return formats;
}

// The experts of a layer, on both sides.
struct Layer {
    static constexpr int64_t k_experts = 9;
    static constexpr int64_t k_used = 3;

    Layer(Fixture& fixture, Format gate, Format up, Format down, int64_t expert_ff, int64_t width)
        : f(fixture), ff(expert_ff), hidden(width) {
        Random random(5);
        for (const Format format : {gate, up})
            for (int64_t e = 0; e < k_experts; ++e) matrices.emplace_back(format, ff, hidden, random);
        for (int64_t e = 0; e < k_experts; ++e) matrices.emplace_back(down, hidden, ff, random);
        const auto stack = [&](bool is_on_device, size_t first) {
            ExpertStack s;
            for (size_t e = 0; e < k_experts; ++e) {
                const TestMatrix& matrix = matrices[first + e];
                add_expert(s, is_on_device ? f.put_packed(matrix) : matrix.view,
                           1.0F + static_cast<float>(e) / 8.0F);
            }
            return s;
        };
        on_host = {stack(false, 0), stack(false, k_experts), stack(false, 2 * k_experts)};
        on_device = f.with_table({stack(true, 0), stack(true, k_experts), stack(true, 2 * k_experts)});
    }
    // Most of the rows choose expert 4; of one row six experts have no slot.
    static std::vector<int32_t> ids(int64_t n) {
        std::vector<int32_t> all;
        for (int64_t i = 0; i < k_used * n; ++i)
            all.push_back(static_cast<int32_t>(i % k_used == 0 ? 4 : (i / k_used + 2 * (i % k_used)) % 4));
        return all;
    }
    static std::vector<float> gates(int64_t n) {
        std::vector<float> all;
        for (int64_t i = 0; i < k_used * n; ++i) all.push_back(0.2F + static_cast<float>(i % k_used) / 5.0F);
        return all;
    }

    Fixture& f;
    int64_t ff;
    int64_t hidden;
    std::vector<TestMatrix> matrices;
    ExpertWeights on_host;
    ExpertWeights on_device;
};

// Returns the slots' outputs, n_slots rows of -1 where the kernels write nothing.
std::vector<float> slots_of(const Layer& layer, const std::vector<ExpertPlace>& table,
                            const std::vector<float>& x, const std::vector<int32_t>& ids, TileSize size) {
    Fixture& f = layer.f;
    ExpertWeights weights = layer.on_device;
    weights.places = f.put(table);
    const cuda::ExpertViews views(weights);
    const int64_t n = std::ssize(x) / layer.hidden;
    const int64_t n_slots = std::ssize(ids);
    const HalfKind kind = kind_for(views.gate.format);
    CHECK(kind_for(views.down.format) == kind);
    const HalfInputs input = halved(f, x, n, layer.hidden, size, kind);
    const HalfInputs activated = room_for(f, n_slots, layer.ff, size, kind);
    const int32_t* device_ids = f.put(ids);
    const int32_t tile_slots = cuda::fast::tile_inputs(size);
    const int64_t most = cuda::fast::most_expert_tiles(n_slots, Layer::k_experts, tile_slots);
    const cuda::fast::ExpertTiles tiles = {
        f.put(std::vector<int32_t>(static_cast<size_t>(n_slots))),
        f.put(std::vector<cuda::fast::ExpertTile>(static_cast<size_t>(most))), f.put(std::vector<int32_t>(1)),
        most, tile_slots};
    float* output = f.put(std::vector<float>(static_cast<size_t>(n_slots * layer.hidden), -1.0F));
    f.device->synchronize(*f.stream);
    cuda::fast::group_slots(nullptr, device_ids, n_slots, weights.places, Layer::k_experts, tiles);
    cuda::fast::activate_tile(nullptr, views.gate, views.up, input, Layer::k_used, tiles, activated, size);
    cuda::fast::project_tile(nullptr, views.down, activated, 1, tiles, output, size);
    f.device->synchronize(*f.stream);
    return f.get(output, static_cast<size_t>(n_slots * layer.hidden));
}

// Returns the reference's outputs of the slots, -1 for those whose expert is not here.
std::vector<float> reference_slots(const Layer& layer, const std::vector<ExpertPlace>& table,
                                   const std::vector<float>& x, const std::vector<int32_t>& ids) {
    std::vector<float> all;
    const float one = 1.0F;
    for (size_t slot = 0; slot < ids.size(); ++slot) {
        std::vector<float> y(static_cast<size_t>(layer.hidden), -1.0F);
        if (table[static_cast<size_t>(ids[slot])].gate != nullptr) {
            const float* row = x.data() + static_cast<int64_t>(slot) / Layer::k_used * layer.hidden;
            layer.f.reference->experts(*layer.f.none, row, 1, &ids[slot], &one, 1, layer.on_host, y.data(),
                                       false);
        }
        all.insert(all.end(), y.begin(), y.end());
    }
    return all;
}

}  // namespace

TEST_CASE("gpu tile: rows become halves in the kernel's order, with a factor for their columns") {
    if (!has_devices(1)) return;
    Fixture f(Arithmetic::fast);
    Random random(31);
    for (const TileSize size : {TileSize::small, TileSize::large}) {
        const int64_t part = cuda::fast::factor_cols(size);
        for (const int64_t cols : {int64_t{32}, int64_t{512}, int64_t{544}}) {
            INFO(name_of(size) << ", " << cols << " columns");
            // Ordinary, large, small and mixed rows, zeros, and one with a part of each.
            std::vector<float> x;
            const float sizes[] = {1.0F, 1e6F, 1e-6F, 3e4F, 1e-3F, 1e18F, 1e-12F, 0.0F};
            for (const float each : sizes) {
                const std::vector<float> row = random.normal(cols, each);
                x.insert(x.end(), row.begin(), row.end());
            }
            std::vector<float> mixed = random.normal(cols);
            for (size_t c = 0; c < mixed.size(); ++c) mixed[c] *= sizes[c / static_cast<size_t>(part) % 8];
            x.insert(x.end(), mixed.begin(), mixed.end());
            const int64_t n = std::ssize(x) / cols;
            const HalfInputs out = halved(f, x, n, cols, size);
            const std::vector<uint16_t> half = f.get(out.half, x.size());
            const int64_t n_factors = cuda::fast::n_factors(cols, size);
            const std::vector<float> factor = f.get(out.factor, static_cast<size_t>(n * n_factors));
            for (int64_t i = 0; i < n; ++i) {
                for (int64_t first = 0; first < cols; first += part) {
                    float largest = 0.0F;
                    const int64_t end = std::min(first + part, cols);
                    for (int64_t c = first; c < end; ++c)
                        largest = std::max(largest, std::abs(x[static_cast<size_t>(i * cols + c)]));
                    const float own = factor[static_cast<size_t>(i * n_factors + first / part)];
                    CHECK((own == 1.0F) == (largest == 0.0F || (largest >= 0x1p-10F && largest < 0x1p15F)));
                    int exponent = 0;
                    CHECK(std::frexp(own, &exponent) == 0.5F);  // a power of two
                    // Exact to 11 bits, or to the least number of F16.
                    for (int64_t c = first; c < end; ++c) {
                        const int64_t in_16 = c % 16;
                        const int64_t place =
                            in_16 % 4 < 2 ? in_16 / 4 * 2 + in_16 % 2 : 8 + in_16 / 4 * 2 + in_16 % 2;
                        const float value =
                            own * f16_to_float(half[static_cast<size_t>(i * cols + c / 16 * 16 + place)]);
                        const float expected = x[static_cast<size_t>(i * cols + c)];
                        if (!(std::abs(value - expected) <=
                              std::max(0x1p-11F * std::abs(expected), own * 0x1p-25F)))
                            FAIL(i << ", " << c << ": " << value << " for " << expected);
                    }
                }
            }
        }
    }
    // For weights that are not packed: the same halves and factors in the order of the row, or BF16 of any size.
    const std::vector<float> x = large_rows(k_kinds_of_rows, 544, 0, random);
    for (const TileSize size : {TileSize::small, TileSize::large}) {
        INFO(name_of(size));
        const auto n_all = static_cast<size_t>(k_kinds_of_rows * cuda::fast::n_factors(544, size));
        const HalfInputs packed = halved(f, x, k_kinds_of_rows, 544, size);
        const HalfInputs f16 = halved(f, x, k_kinds_of_rows, 544, size, HalfKind::f16);
        const HalfInputs bf16 = halved(f, x, k_kinds_of_rows, 544, size, HalfKind::bf16);
        CHECK(f.get(f16.factor, n_all) == f.get(packed.factor, n_all));
        CHECK(f.get(bf16.factor, n_all) == std::vector<float>(n_all, 1.0F));
        const std::vector<uint16_t> ordered = f.get(packed.half, x.size());
        const std::vector<uint16_t> f16_halves = f.get(f16.half, x.size());
        const std::vector<uint16_t> bf16_halves = f.get(bf16.half, x.size());
        for (size_t c = 0; c < x.size(); ++c) {
            const size_t in_16 = c % 16;
            const size_t place = in_16 % 4 < 2 ? in_16 / 4 * 2 + in_16 % 2 : 8 + in_16 / 4 * 2 + in_16 % 2;
            if (f16_halves[c] != ordered[c / 16 * 16 + place] || bf16_halves[c] != float_to_bf16(x[c]))
                FAIL(c << ": " << x[c]);
        }
    }
    // NaN and infinity stay what they are.
    std::vector<float> bad(128, 1e9F);
    bad[5] = NAN;
    bad[70] = INFINITY;
    for (const TileSize size : {TileSize::small, TileSize::large}) {
        const HalfInputs out = halved(f, bad, 1, 128, size);
        const std::vector<uint16_t> half = f.get(out.half, 128);
        CHECK(std::isnan(f16_to_float(half[3])));        // column 5 of its 16
        CHECK(std::isinf(f16_to_float(half[64 + 10])));  // column 6
    }
}

TEST_CASE("gpu tile: products of every format, of 1 to 130 rows, are near those of floats") {
    if (!has_devices(1)) return;
    Fixture f(Arithmetic::fast);
    const std::vector<Format> formats = packed_formats();
    // Each family has one with all counts of rows. A GPU, and MINIM_FULL_TESTS, have the kernels of all formats, and these all counts.
    constexpr Format k_long[] = {Format::nvfp4, Format::q4_k,   Format::iq4_xs,
                                 Format::iq2_s, Format::iq2_kt, Format::tq2_0};
    const bool has_all = formats.size() > 30;
    for (const Format format : formats) {
        Random random(32);
        TwoMatrices matrices(f, format, random);
        const bool is_long = has_all || std::ranges::find(k_long, format) != std::end(k_long);
        const std::vector<int64_t> counts =
            is_long ? std::vector<int64_t>{1, 16, 63, 64, 65, 127, 128, 130} : std::vector<int64_t>{1, 19};
        const std::vector<float> x = random.normal(counts.back() * matrices.cols);
        // Scales and minima are rounded to F16, and in these two formats most of a weight is cancelled by its minimum.
        const double near = format == Format::q2_k || format == Format::q5_k ? 2e-3 : 1e-3;
        for (const TileSize size : tile_sizes()) {
            std::vector<float> all;
            for (auto n = counts.rbegin(); n != counts.rend(); ++n) {
                INFO(traits(format).name << ", " << name_of(size) << ", " << *n << " rows");
                const std::vector<float> rows = rows_of(x, 0, *n, matrices.cols);
                const std::vector<float> y = matrices.on_device(rows, *n, size);
                if (all.empty()) all = y;
                CHECK(distance(matrices.on_host(rows, *n), y) < near);
                CHECK(same_bits(y, rows_of(all, 0, *n, TwoMatrices::k_width)));
            }
            // The last row alone.
            const int64_t last = counts.back() - 1;
            CHECK(same_bits(matrices.on_device(rows_of(x, last, 1, matrices.cols), 1, size),
                            rows_of(all, last, 1, TwoMatrices::k_width)));
        }
    }
}

TEST_CASE("gpu tile: products of F16, BF16 and FP8 matrices, of 1 to 130 rows, are those of floats") {
    if (!has_devices(1)) return;
    Fixture f(Arithmetic::fast);
    struct Shape {
        int64_t rows, cols;
    };
    for (const Format format : k_row_formats) {
        const bool is_fp8 = format == Format::fp8_e4m3_b128;
        // Fewer rows than 16, an odd number, more than a block has; columns that are no whole stage and no whole factor.
        for (const Shape& shape :
             {Shape{7, is_fp8 ? 128 : 32}, Shape{147, is_fp8 ? 384 : 352}, Shape{261, is_fp8 ? 256 : 224}}) {
            Random random(37);
            TestMatrix matrix(format, shape.rows, shape.cols, random);
            Matrix on_device = f.put_packed(matrix);
            CHECK(!on_device.packed);
            CHECK(cuda::fast::has_tile_rows(format, shape.cols));
            matrix.view.scale = on_device.scale = 0.75F;
            const std::vector<int64_t> counts = shape.rows == 147
                                                    ? std::vector<int64_t>{130, 128, 65, 64, 63, 17, 16, 1}
                                                    : std::vector<int64_t>{21, 1};
            // Inputs are halves already, so only the order of additions differs.
            const std::vector<float> x = rounded_to(kind_for(format), random.normal(counts[0] * shape.cols));
            for (const TileSize size : tile_sizes()) {
                std::vector<float> all;
                for (const int64_t n : counts) {
                    INFO(traits(format).name << ", " << shape.rows << " x " << shape.cols << ", "
                                             << name_of(size) << ", " << n << " rows");
                    const float before = n == 21 ? 0.25F : 0.0F;
                    const std::vector<float> rows = rows_of(x, 0, n, shape.cols);
                    const std::vector<float> y = products_of_rows(f, on_device, rows, n, size, before);
                    std::vector<float> expected(y.size(), before);
                    const LinearTask task = {&matrix.view, expected.data(), before != 0.0F};
                    f.reference->linear(*f.none, rows.data(), n, {&task, 1});
                    CHECK(distance(expected, y) < 2e-6);
                    if (before != 0.0F) continue;
                    if (all.empty()) all = y;
                    CHECK(same_bits(y, rows_of(all, 0, n, shape.rows)));
                }
                // The last row alone.
                const int64_t last = counts[0] - 1;
                if (shape.rows == 147)
                    CHECK(same_bits(
                        products_of_rows(f, on_device, rows_of(x, last, 1, shape.cols), 1, size, 0.0F),
                        rows_of(all, last, 1, shape.rows)));
            }
        }
    }
    CHECK_FALSE(cuda::fast::has_tile_rows(Format::f32, 128));
    CHECK_FALSE(cuda::fast::has_tile_rows(Format::bf16, 40));
}

TEST_CASE("gpu tile: BF16 weights and scales of FP8 that F16 does not hold") {
    if (!has_devices(1)) return;
    Fixture f(Arithmetic::fast);
    constexpr int64_t k_rows = 19;
    constexpr int64_t k_cols = 384;
    for (const Format format : {Format::bf16, Format::fp8_e4m3_b128}) {
        Random random(38);
        TestMatrix matrix(format, k_rows, k_cols, random);
        scale_rows(matrix, {0, 20, -30, 100, -90});
        const Matrix on_device = f.put_packed(matrix);
        const std::vector<float> x = rounded_to(kind_for(format), random.normal(3 * k_cols));
        for (const TileSize size : tile_sizes()) {
            const std::vector<float> y = products_of_rows(f, on_device, x, 3, size, 0.0F);
            for (int64_t i = 0; i < 3; ++i) {
                for (int64_t r = 0; r < k_rows; ++r) {
                    INFO(traits(format).name << ", " << name_of(size) << ", row " << r);
                    const Dot dot = exact_dot(matrix.decoded_row(r), rows_of(x, i, 1, k_cols));
                    const double product = y[static_cast<size_t>(i * k_rows + r)];
                    CHECK(std::abs(product - dot.value) < 1e-6 * dot.magnitude);
                }
            }
        }
    }
}

TEST_CASE("gpu tile: rows of up to a million and down to a millionth, and their neighbours' bits") {
    if (!has_devices(1)) return;
    Fixture f(Arithmetic::fast);
    for (const Format format :
         {Format::iq4_xs, Format::q4_k, Format::nvfp4, Format::f16, Format::bf16, Format::fp8_e4m3_b128}) {
        Random random(33);
        const int64_t more = std::max<int64_t>(traits(format).block_elems, 32);
        const int64_t cols = 512 + (more < 256 ? more : 0);
        const LargeMatrix weight(format, 48, cols, random);
        const Matrix on_device = f.put_packed(weight.matrix);
        // Rows of every kind, then those of a millionth, of both, and one whose largest and smallest parts are far apart.
        std::vector<float> x = large_rows(k_kinds_of_rows, cols, 0, random);
        for (const std::pair<float, float>& sizes :
             {std::pair(1e-6F, 1e-6F), {1e6F, 1e-6F}, {1e-6F, 1e6F}, {1e15F, 1e-12F}}) {
            std::vector<float> row = random.normal(cols);
            for (size_t c = 0; c < row.size(); ++c) row[c] *= c % 256 < 128 ? sizes.first : sizes.second;
            x.insert(x.end(), row.begin(), row.end());
        }
        const int64_t n = std::ssize(x) / cols;
        for (const TileSize size : tile_sizes()) {
            const auto products = [&](int64_t first, int64_t count) {
                const HalfInputs input =
                    halved(f, rows_of(x, first, count, cols), count, cols, size, kind_for(format));
                float* y = f.put(std::vector<float>(static_cast<size_t>(count * 48)));
                cuda::fast::Products one = {};
                one.format = format;
                one.cols = cols;
                one.row_bytes = on_device.row_bytes;
                one.count = 1;
                one.weight[0] = reinterpret_cast<const uint8_t*>(on_device.data);
                one.rows[0] = one.y_stride[0] = 48;
                one.scale[0] = 1.0F;
                one.y[0] = y;
                cuda::fast::linear_tile(nullptr, one, input, count, size);
                f.device->synchronize(*f.stream);
                return f.get(y, static_cast<size_t>(count * 48));
            };
            INFO(traits(format).name << ", " << name_of(size));
            const std::vector<float> all = products(0, n);
            // BF16 has three bits less.
            CHECK(weight.products(x).worst(all) < (format == Format::bf16 ? 4e-3 : 1e-3));
            for (int64_t i = 0; i < n; ++i) CHECK(same_bits(products(i, 1), rows_of(all, i, 1, 48)));
        }
    }
}

TEST_CASE(
    "gpu tile: slots of experts, of which some have none, some are not here and one has several tiles") {
    if (!has_devices(1)) return;
    Fixture f(Arithmetic::fast);
    struct Case {
        Format gate, down;
        int64_t ff, hidden;
    };
    // One and two scales, minima, rows that are no whole tile and no whole factor, columns that are no whole stage.
    for (const Case& c :
         {Case{Format::iq4_xs, Format::iq4_xs, 256, 512}, Case{Format::q4_k, Format::nvfp4, 192, 256},
          Case{Format::q8_0, Format::q8_0, 96, 288}, Case{Format::iq2_s, Format::q6_k, 256, 256},
          Case{Format::f16, Format::f16, 96, 160}, Case{Format::bf16, Format::bf16, 160, 224},
          Case{Format::fp8_e4m3_b128, Format::f16, 128, 256},
          Case{Format::f16, Format::fp8_e4m3_b128, 256, 96}}) {
        const Layer layer(f, c.gate, c.gate, c.down, c.ff, c.hidden);
        std::vector<ExpertPlace> table = backend::places_of(layer.on_device);
        table[1].gate = nullptr;
        table[1].up = table[1].down = reinterpret_cast<const std::byte*>(uintptr_t{16});
        for (const TileSize size : tile_sizes()) {
            std::vector<float> first;  // the slots of one row
            for (const int64_t n : {1, 30, 140}) {
                if (n == 140 && c.gate != Format::iq4_xs && c.gate != Format::bf16) continue;
                INFO(traits(c.gate).name << ", " << traits(c.down).name << ", " << name_of(size) << ", " << n
                                         << " rows");
                Random random(34);
                const std::vector<float> x = random.normal(n * c.hidden, 0.1F);
                const std::vector<int32_t> ids = Layer::ids(n);
                const std::vector<float> y = slots_of(layer, table, x, ids, size);
                // Three products, each as near as a single one.
                CHECK(distance(reference_slots(layer, table, x, ids), y) <
                      (c.gate == Format::bf16 ? 1.2e-2 : 3e-3));
                for (size_t slot = 0; slot < ids.size(); ++slot)
                    if (ids[slot] == 1) CHECK(y[slot * static_cast<size_t>(c.hidden)] == -1.0F);
                if (first.empty()) first = y;
                CHECK(same_bits(first, rows_of(y, 0, Layer::k_used, c.hidden)));
            }
        }
    }
}

TEST_CASE("gpu tile: activated slots of up to a million and down to a millionth") {
    if (!has_devices(1)) return;
    Fixture f(Arithmetic::fast);
    for (const Format format :
         {Format::iq4_xs, Format::q4_k, Format::f16, Format::bf16, Format::fp8_e4m3_b128}) {
        const Layer layer(f, format, format, format, 256, 256);
        const std::vector<ExpertPlace> table = backend::places_of(layer.on_device);
        for (const TileSize size : tile_sizes()) {
            // Each product is about as large as the input times 16, an activated slot as the square of that.

            std::vector<float> x;
            for (const float each : {0.1F, 60.0F, 1e-4F, 0.1F}) {
                Random random(35);
                const std::vector<float> row = random.normal(256, each);
                x.insert(x.end(), row.begin(), row.end());
            }
            const std::vector<int32_t> ids = Layer::ids(4);
            const std::vector<float> y = slots_of(layer, table, x, ids, size);
            const std::vector<float> expected = reference_slots(layer, table, x, ids);
            for (int64_t i = 0; i < 4; ++i) {
                INFO(traits(format).name << ", " << name_of(size) << ", row " << i);
                const std::vector<float> alone =
                    slots_of(layer, table, rows_of(x, i, 1, 256),
                             {ids.begin() + 3 * i, ids.begin() + 3 * i + 3}, size);
                const std::vector<float> own = rows_of(y, 3 * i, 3, 256);
                CHECK(same_bits(alone, own));
                CHECK(distance(rows_of(expected, 3 * i, 3, 256), own) <
                      (format == Format::bf16 ? 5e-3 : 1e-3));
            }
        }
    }
}

TEST_CASE("gpu tile: with the path, operations on many rows of packed weights are near those of floats") {
    if (!has_devices(1)) return;
    const SetLaunchPaths set("tiles");
    Fixture f(Arithmetic::fast);
    f.stream = f.device->reserve({.n_rows = 66,
                                  .n_context = 64,
                                  .hidden = 1024,
                                  .n_head = 2,
                                  .n_head_kv = 1,
                                  .head_dim = 128,
                                  .n_expert = 9,
                                  .n_expert_used = 3,
                                  .expert_ff = 512});
    Random random(36);
    // Rows of three formats in one operation, one of them not packed; rows beyond the last panel; few rows as by default.
    const TestMatrix first(Format::iq4_xs, 112, 512, random);
    const TestMatrix second(Format::iq4_xs, 37, 512, random);
    const TestMatrix third(Format::q4_k, 48, 512, random);
    const TestMatrix floats(Format::bf16, 40, 512, random);
    const TestMatrix* matrices[] = {&first, &second, &third, &floats};
    for (const int64_t n : {3, 33, 66}) {
        INFO(n << " rows");
        const std::vector<float> h = random.normal(n * 512);
        std::vector<Matrix> on_device;
        std::vector<std::vector<float>> y;
        std::vector<float*> device_y;
        for (const TestMatrix* matrix : matrices) {
            on_device.push_back(f.put_packed(*matrix));
            y.emplace_back(static_cast<size_t>(n * matrix->view.rows));
            device_y.push_back(f.put(y.back()));
        }
        std::vector<LinearTask> tasks;
        std::vector<LinearTask> expected;
        for (size_t i = 0; i < 4; ++i) {
            tasks.push_back({&on_device[i], device_y[i], false});
            expected.push_back({&matrices[i]->view, y[i].data(), false});
        }
        f.reference->linear(*f.none, h.data(), n, expected);
        f.device->linear(*f.stream, f.put(h), n, tasks);
        for (size_t i = 0; i < 4; ++i)
            CHECK(distance(y[i], f.get(device_y[i], y[i].size())) < (n == 3 ? 1.5e-2 : i == 3 ? 4e-3 : 1e-3));
    }
    struct Case {
        Format gate, up, down;
        int64_t ff, hidden;
        double near;
        backend::Activation activation = {};
    };
    constexpr backend::Activation k_clamped = {.alpha = 1.702F, .limit = 0.25F};
    // Gate and up in one launch or in two; rows beyond the last panel; floats in between, whose tiles are smaller.
    for (
        const Case& c :
        {Case{Format::iq4_xs, Format::iq4_xs, Format::q4_k, 256, 256, 1e-3},
         Case{Format::iq4_xs, Format::iq4_xs, Format::q4_k, 256, 256, 1e-3, k_clamped},
         Case{Format::iq2_s, Format::iq3_s, Format::q8_0, 96, 256, 1e-3, k_clamped},
         Case{Format::q8_0, Format::q8_0, Format::q8_0, 64, 72 + 24, 1e-3},
         Case{Format::q4_0, Format::q4_0, Format::bf16, 128, 256, 5e-3},
         Case{Format::bf16, Format::bf16, Format::q8_0, 128, 256, 5e-3},
         // Not packed: in one launch, in one with the clamp, in two, and as floats where a row is no whole unit.
         Case{Format::bf16, Format::bf16, Format::bf16, 96, 160, 8e-3},
         Case{Format::f16, Format::f16, Format::fp8_e4m3_b128, 128, 256, 1e-3, k_clamped},
         Case{Format::fp8_e4m3_b128, Format::f16, Format::f16, 96, 128, 1e-3},
         Case{Format::f16, Format::f16, Format::bf16, 96, 160, 5e-3},
         Case{Format::f16, Format::f16, Format::f16, 40, 96, 1e-3}}) {
        Layer layer(f, c.gate, c.up, c.down, c.ff, c.hidden);
        layer.on_device.activation = layer.on_host.activation = c.activation;
        for (const int64_t n : {0, 5, 66}) {
            INFO(traits(c.gate).name << ", " << traits(c.up).name << ", " << traits(c.down).name << ", " << n
                                     << " rows");
            const std::vector<float> h = random.normal(n * c.hidden, 0.05F);
            std::vector<float> y = random.normal(n * c.hidden, 0.01F);
            float* device_y = f.put(y);
            f.device->experts(*f.stream, f.put(h), n, f.put(Layer::ids(n)), f.put(Layer::gates(n)),
                              Layer::k_used, layer.on_device, device_y, true);
            f.reference->experts(*f.none, h.data(), n, Layer::ids(n).data(), Layer::gates(n).data(),
                                 Layer::k_used, layer.on_host, y.data(), true);
            CHECK(distance(y, f.get(device_y, y.size())) < (n == 5 ? 2.5e-2 : c.near));
        }
    }
}

TEST_CASE("gpu tile: with the path, many rows of F16, BF16 and FP8 matrices have the tile kernel's bits") {
    if (!has_devices(1)) return;
    for (const Format format : k_row_formats) {
        INFO(traits(format).name);
        Random random(39);
        const TestMatrix matrix(format, 45, 256, random);
        const std::vector<float> x = random.normal(11 * 256);
        const auto of_operation = [&](const char* paths) {
            const SetLaunchPaths set(paths);
            Fixture f(Arithmetic::fast);
            const Matrix on_device = f.put_packed(matrix);
            float* y = f.put(std::vector<float>(11 * 45));
            const LinearTask task = {&on_device, y, false};
            f.device->linear(*f.stream, f.put(x), 11, {&task, 1});
            return f.get(y, 11 * 45);
        };
        Fixture f(Arithmetic::fast);
        const std::vector<float> tiled =
            products_of_rows(f, f.put_packed(matrix), x, 11, tile_sizes().back(), 0.0F);
        CHECK(same_bits(of_operation("tiles"), tiled));
        CHECK_FALSE(same_bits(of_operation(""), tiled));
    }
}

TEST_CASE(
    "gpu tile: with the path, a text's logits do not depend on its pieces in deterministic arithmetic") {
    if (!has_devices(1)) return;
    const SetLaunchPaths set("tiles");
    for (const std::string& path : {k_models[0], k_models[1]}) {
        INFO(path);
        const auto model = open_on(path, {0}, Arithmetic::deterministic);
        const std::vector<float> whole = logits(model, Format::f16, 6, 6);
        CHECK(same_bits(logits(model, Format::f16, 6, 4), whole));
        CHECK(same_bits(logits(model, Format::f16, 6, 1), whole));
        // The tile kernel rounds less than 8-bit inputs do.
        const std::vector<float> exact = logits(open_on(path, {0}, Arithmetic::exact), Format::f16, 6, 6);
        CHECK(distance(exact, whole) < 1e-2);
    }
}

TEST_CASE("gpu tile: the path's work space is counted, and is there only with the path") {
    if (!has_devices(1)) return;
    const auto bytes_with = [](const char* paths) {
        const SetLaunchPaths set(paths);
        const auto device = cuda::make_cuda_backend(0, Arithmetic::fast);
        const auto stream = device->reserve(k_limits);
        CHECK(device->memory().used(backend::MemoryUse::work) == device->step_bytes(k_limits));
        return device->step_bytes(k_limits);
    };
    // Rows of 12 x 128 columns and slots of 512, two bytes each, and at most a factor for 64 columns; aligned.
    const auto halves = static_cast<uint64_t>(2 * 40 * 1536 + 2 * 120 * 512);
    const uint64_t more = bytes_with("tiles") - bytes_with("");
    CHECK(more > halves);
    CHECK(more <= halves + halves / 32 + 4 * 256);
}

}  // namespace minim::test
