// SPDX-License-Identifier: Apache-2.0
// The stream kernel (cuda/fast/stream_products.h): products of one to four rows and their experts beside the kernels that it replaces,
// which multiply the same codes in another order. A row's bits must be the same in every batch.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "cuda/fast/operations.h"
#include "cuda/fast_stream.h"
#include "cuda/runtime.h"
#include "cuda/views.h"
#include "format/blocks.h"
#include "gpu/fixture.h"
#include "gpu/launch_paths.h"
#include "gpu/models.h"
#include "gpu/support.h"
#include "support/catch.h"

namespace minim::test {
namespace {

using backend::Arithmetic;
using backend::ExpertPlace;
using backend::ExpertStack;
using backend::ExpertWeights;
using backend::Matrix;
using cuda::fast::Products;
using cuda::fast::Q8Block;
using cuda::fast::StreamDevice;
using cuda::fast::StreamRows;

// With few blocks, each one has several items.
constexpr int32_t k_blocks = 3;
constexpr int32_t k_more_blocks = 5;
constexpr int32_t k_small_shared_bytes = 99 * 1024;

bool has_stream_device() {
    if (!has_devices(1)) return false;
    if (cuda::runtime::has_bulk_copies(0)) return true;
    std::printf("skipped: the device has no bulk copies\n");
    return false;
}

// The memory of this device's blocks, and, if that is more, the memory of smaller ones, with another number of blocks: results must be
// the same.
std::vector<StreamDevice> stream_devices() {
    const auto own = static_cast<int32_t>(cuda::runtime::block_shared_bytes(0));
    std::vector<StreamDevice> devices = {{k_blocks, k_small_shared_bytes}};
    if (own >= cuda::fast::k_large_shared_bytes) devices.push_back({k_more_blocks, own});
    return devices;
}

// Those of stream_devices() for tests that take long: both for one format.
std::vector<StreamDevice> some_stream_devices(Format format) {
    std::vector<StreamDevice> devices = stream_devices();
    if (format != Format::q8_0) devices = {devices.back()};
    return devices;
}

std::vector<Format> stream_formats() {
    std::vector<Format> formats;
    for_each_block(AllBlocks{}, [&](auto block) {
        if (cuda::fast::has_stream_kernel(decltype(block)::format))
            formats.push_back(decltype(block)::format);
    });
    return formats;
}

// Matrices of one format that one launch multiplies: pairs of panels, an odd number of panels, one panel. The products of the second
// one are added to what is there.
struct ThreeMatrices {
    static constexpr int64_t k_rows[] = {160, 48, 16};
    static constexpr int64_t k_all = 160 + 48 + 16;

    ThreeMatrices(Fixture& fixture, Format f_format, int64_t n_cols)
        : f(fixture), format(f_format), cols(n_cols) {
        Random random(41);
        for (const int64_t rows : k_rows) {
            matrices.emplace_back(format, rows, cols, random);
            packed.push_back(f.put_packed(matrices.back()));
        }
    }
    // Calls multiply(products), and returns the results [n, k_all].
    template <typename Multiply>
    std::vector<float> run(int64_t n, const Multiply& multiply) {
        Products products = {};
        products.format = format;
        products.cols = cols;
        products.row_bytes = packed[0].row_bytes;
        products.count = 3;
        for (int i = 0; i < 3; ++i) {
            products.weight[i] = reinterpret_cast<const uint8_t*>(packed[static_cast<size_t>(i)].data);
            products.rows[i] = products.y_stride[i] = k_rows[i];
            products.scale[i] = 1.0F - 0.125F * static_cast<float>(i);
            products.y[i] = f.put(std::vector<float>(static_cast<size_t>(n * k_rows[i]), 0.25F));
            products.add[i] = i == 1;
        }
        multiply(products);
        f.device->synchronize(*f.stream);
        std::vector<float> all;
        for (int64_t row = 0; row < n; ++row) {
            for (int i = 0; i < 3; ++i) {
                const std::vector<float> y = f.get(products.y[i], static_cast<size_t>(n * k_rows[i]));
                all.insert(all.end(), y.begin() + row * k_rows[i], y.begin() + (row + 1) * k_rows[i]);
            }
        }
        return all;
    }

    Fixture& f;
    Format format;
    int64_t cols;
    std::vector<TestMatrix> matrices;
    std::vector<Matrix> packed;
};

Q8Block* quantized(Fixture& f, const std::vector<float>& x, int64_t n, int64_t cols) {
    auto* input = f.put(std::vector<Q8Block>(static_cast<size_t>(n * cols / 32)));
    const float* rows = f.put(x);
    cuda::fast::quantize(nullptr, rows, n, cols, input);
    f.device->synchronize(*f.stream);
    return input;
}

bool are_equal(Fixture& f, const Q8Block* a, const Q8Block* b, int64_t count) {
    const auto n = static_cast<size_t>(count);
    return std::memcmp(f.get(a, n).data(), f.get(b, n).data(), n * sizeof(Q8Block)) == 0;
}

std::vector<float> row_of(const std::vector<float>& all, int64_t row, int64_t width) {
    return {all.begin() + row * width, all.begin() + (row + 1) * width};
}

// The experts of a layer, one of which is not here, and rows that choose among them.
struct ExpertsOfRows {
    static constexpr int64_t k_experts = 5;
    static constexpr int64_t k_used = 3;
    static constexpr int64_t k_hidden = 768;  // an odd number of groups
    static constexpr int64_t k_ff = 256;
    static constexpr int64_t k_rows = 13;
    enum class Sums { none, added, set };

    ExpertsOfRows(Fixture& fixture, Format format, const backend::Activation& activation) : f(fixture) {
        Random random(44);
        const auto stack = [&](int64_t rows, int64_t cols) {
            ExpertStack some;
            for (int64_t e = 0; e < k_experts; ++e)
                add_expert(some, f.put_packed(TestMatrix(format, rows, cols, random)),
                           1.0F + static_cast<float>(e) / 8.0F);
            return some;
        };
        weights = {stack(k_ff, k_hidden), stack(k_ff, k_hidden), stack(k_hidden, k_ff), activation};
        table = backend::places_of(weights);
        table[3].gate = nullptr;
        table[3].up = table[3].down = reinterpret_cast<const std::byte*>(uintptr_t{16});
        weights.places = f.put(table);
        x = random.normal(k_rows * k_hidden, 0.1F);
        gates = random.normal(k_rows * k_used);
        y = random.normal(k_rows * k_hidden);
    }
    // Row 2 chooses only the expert that is not here, in all its slots; rows from 4 on one expert more often than a tile has slots.
    static std::vector<int32_t> ids(int64_t n) {
        std::vector<int32_t> all = {4, 0, 2, 1, 3, 0, 3, 3, 3, 2, 4, 3};
        for (int64_t i = 4; i < k_rows; ++i) {
            all.push_back(4);
            all.push_back(static_cast<int32_t>(i % 2));
            all.push_back(static_cast<int32_t>(2 + i % 2));
        }
        return {all.begin(), all.begin() + n * k_used};
    }

    // Returns y, or the slots' outputs, and the scales of the activated slots. Without a device by the kernels for a few rows. of_floats:
    // the kernel quantises the rows.
    std::vector<float> run(int64_t n, Sums sums, bool by_chosen, const StreamDevice* device,
                           bool of_floats = false) {
        const int64_t n_slots = n * k_used;
        const cuda::ExpertViews views(weights);
        const Q8Block* input = quantized(f, x, n, k_hidden);
        auto* later = f.put(std::vector<Q8Block>(static_cast<size_t>(n * k_hidden / 32)));
        const StreamRows rows = of_floats ? StreamRows{.x = f.put(x), .quantized = later} : StreamRows{input};
        auto* activated = f.put(std::vector<Q8Block>(static_cast<size_t>(n_slots * k_ff / 32)));
        float* output = f.put(std::vector<float>(static_cast<size_t>(n_slots * k_hidden), -1.0F));
        float* sum = f.put(y);
        std::vector<ExpertPlace> chosen;
        for (const int32_t id : ids(n)) chosen.push_back(table[static_cast<size_t>(id)]);
        const cuda::fast::Slots slots = {f.put(ids(n)), n_slots, nullptr, false,
                                         by_chosen ? f.put(chosen) : nullptr};
        auto* arrived =
            f.put(std::vector<int32_t>(static_cast<size_t>(n * cuda::fast::sum_counters(k_hidden))));
        const cuda::fast::SlotSums added = {f.put(gates), k_used, sum, sums == Sums::added, arrived};
        const cuda::fast::SlotSums* wanted = sums == Sums::none ? nullptr : &added;
        f.device->synchronize(*f.stream);
        if (device != nullptr) {
            CHECK(cuda::fast::activate_stream(nullptr, views.gate, views.up, rows, k_used, slots, activated,
                                              *device));
            CHECK(cuda::fast::project_stream(nullptr, views.down, activated, slots, output, wanted, *device));
        } else {
            cuda::fast::activate(nullptr, views.gate, views.up, input, k_used, slots, activated);
            cuda::fast::project(nullptr, views.down, activated, 1, slots, output, wanted);
        }
        f.device->synchronize(*f.stream);
        if (of_floats) CHECK(are_equal(f, input, later, n * k_hidden / 32));
        std::vector<float> all = sums == Sums::none ? f.get(output, static_cast<size_t>(n_slots * k_hidden))
                                                    : f.get(sum, static_cast<size_t>(n * k_hidden));
        for (const Q8Block& block : f.get(activated, static_cast<size_t>(n_slots * k_ff / 32)))
            all.push_back(block.scale);
        return all;
    }

    // Returns the slots' outputs, and the scales of the activated slots, as run() without sums.
    std::vector<float> run_tiles(int64_t n, const StreamDevice& device) {
        const int64_t n_slots = n * k_used;
        const cuda::ExpertViews views(weights);
        const Q8Block* input = quantized(f, x, n, k_hidden);
        auto* activated = f.put(std::vector<Q8Block>(static_cast<size_t>(n_slots * k_ff / 32)));
        float* output = f.put(std::vector<float>(static_cast<size_t>(n_slots * k_hidden), -1.0F));
        const int32_t size = cuda::fast::k_stream_tile_slots;
        const int64_t most = cuda::fast::most_expert_tiles(n_slots, k_experts, size);
        const cuda::fast::ExpertTiles tiles = {
            f.put(std::vector<int32_t>(static_cast<size_t>(n_slots))),
            f.put(std::vector<cuda::fast::ExpertTile>(static_cast<size_t>(most))),
            f.put(std::vector<int32_t>(1)), most, size};
        const cuda::fast::Slots slots = {f.put(ids(n)), n_slots, &tiles};
        f.device->synchronize(*f.stream);
        cuda::fast::group_slots(nullptr, slots.ids, n_slots, weights.places, k_experts, tiles);
        // Slots in tiles have inputs in blocks.
        CHECK_FALSE(cuda::fast::activate_stream(nullptr, views.gate, views.up, {.x = f.put(x)}, k_used, slots,
                                                activated, device));
        CHECK(cuda::fast::activate_stream(nullptr, views.gate, views.up, {input}, k_used, slots, activated,
                                          device));
        CHECK(cuda::fast::project_stream(nullptr, views.down, activated, slots, output, nullptr, device));
        f.device->synchronize(*f.stream);
        std::vector<float> all = f.get(output, static_cast<size_t>(n_slots * k_hidden));
        for (const Q8Block& block : f.get(activated, static_cast<size_t>(n_slots * k_ff / 32)))
            all.push_back(block.scale);
        return all;
    }

    Fixture& f;
    ExpertWeights weights;
    std::vector<ExpertPlace> table;
    std::vector<float> x;
    std::vector<float> gates;
    std::vector<float> y;
};

}  // namespace

TEST_CASE(
    "gpu stream: products of every format, of one to four rows, beside those of the kernels for a few rows") {
    if (!has_stream_device()) return;
    Fixture f(Arithmetic::fast);
    const std::vector<Format> formats = stream_formats();
    // All of them on a GPU; without MINIM_FULL_TESTS one of each family.
    CHECK((formats.size() == 55 || formats.size() == 7));
    for (const Format format : formats) {
        for (const int64_t cols : {256, 2304, 6144}) {
            ThreeMatrices matrices(f, format, cols);
            Random random(42);
            const std::vector<float> x = random.normal(4 * cols);
            const Q8Block* input = quantized(f, x, 4, cols);
            const std::vector<float> expected = matrices.run(
                4, [&](const Products& products) { cuda::fast::linear(nullptr, products, input, 4, false); });
            std::vector<float> of_four;
            for (const StreamDevice& device : stream_devices()) {
                for (const int64_t n : {4, 3, 2, 1}) {
                    INFO(traits(format).name << ", " << cols << " columns, " << n << " rows, "
                                             << device.shared_bytes << " bytes");
                    const std::vector<float> y = matrices.run(n, [&](const Products& products) {
                        CHECK(cuda::fast::linear_stream(nullptr, products, {input}, n, device));
                    });
                    const std::vector<float> rows(expected.begin(),
                                                  expected.begin() + n * ThreeMatrices::k_all);
                    CHECK(distance(rows, y) < 1e-5);
                    if (of_four.empty()) of_four = y;
                    for (int64_t i = 0; i < n; ++i)
                        CHECK(same_bits(row_of(y, i, ThreeMatrices::k_all),
                                        row_of(of_four, i, ThreeMatrices::k_all)));
                }
            }
        }
    }
}

TEST_CASE("gpu stream: a row that each block normalises, and that is kept for later kernels") {
    if (!has_stream_device()) return;
    Fixture f(Arithmetic::fast);
    for (const int64_t cols : {256, 768, 6400}) {
        INFO(cols << " columns");
        ThreeMatrices matrices(f, Format::q8_0, cols);
        Random random(43);
        const auto n_blocks = static_cast<size_t>(cols / 32);
        const float* x = f.put(random.normal(cols));
        const float* weight = f.put(random.normal(cols));
        const auto run = [&](bool by_stream, std::vector<float>& h, std::vector<Q8Block>& blocks) {
            float* kept = f.put(std::vector<float>(static_cast<size_t>(cols)));
            auto* quantized_row = f.put(std::vector<Q8Block>(n_blocks));
            const std::vector<float> y = matrices.run(1, [&](const Products& products) {
                const cuda::fast::NormRow norm = {x, weight, cols, 1e-6F, kept, quantized_row};
                if (by_stream) {
                    CHECK(cuda::fast::linear_norm_stream(nullptr, products, norm, stream_devices()[0]));
                } else {
                    cuda::fast::linear_norm(nullptr, products, norm);
                }
            });
            h = f.get(kept, static_cast<size_t>(cols));
            blocks = f.get(quantized_row, n_blocks);
            return y;
        };
        std::vector<float> h[2];
        std::vector<Q8Block> blocks[2];
        const std::vector<float> expected = run(false, h[0], blocks[0]);
        CHECK(distance(expected, run(true, h[1], blocks[1])) < 2e-5);
        CHECK(distance(h[0], h[1]) < 1e-6);
        for (size_t b = 0; b < n_blocks; ++b)
            CHECK(std::abs(blocks[0][b].scale - blocks[1][b].scale) < 1e-7F);
    }
}

TEST_CASE(
    "gpu stream: rows of floats have the bits of rows that are quantised before, and are kept for later "
    "kernels") {
    if (!has_stream_device()) return;
    Fixture f(Arithmetic::fast);
    for (const Format format : stream_formats()) {
        for (const int64_t cols : {256, 2304, 6144}) {
            if (cols != 2304 && format != Format::q8_0) continue;
            ThreeMatrices matrices(f, format, cols);
            Random random(45);
            // Ordinary numbers, zeros, numbers without an inverse of their scale, and large ones.
            std::vector<float> x = random.normal(4 * cols);
            for (int64_t c = 0; c < 32; ++c) x[static_cast<size_t>(c)] = 0.0F;
            for (int64_t c = 32; c < 64; ++c) x[static_cast<size_t>(c)] *= 1e-38F;
            for (int64_t c = cols; c < 2 * cols; ++c) x[static_cast<size_t>(c)] *= 1e6F;
            const float* rows = f.put(x);
            for (const StreamDevice& device : some_stream_devices(format)) {
                for (const int64_t n : {4, 3, 2, 1}) {
                    INFO(traits(format).name << ", " << cols << " columns, " << n << " rows, "
                                             << device.shared_bytes << " bytes");
                    const Q8Block* input = quantized(f, x, n, cols);
                    auto* later = f.put(std::vector<Q8Block>(static_cast<size_t>(n * cols / 32)));
                    const auto run = [&](const StreamRows& of) {
                        return matrices.run(n, [&](const Products& products) {
                            CHECK(cuda::fast::linear_stream(nullptr, products, of, n, device));
                        });
                    };
                    CHECK(same_bits(run({.x = rows, .quantized = later}), run({input})));
                    CHECK(are_equal(f, input, later, n * cols / 32));
                    CHECK(same_bits(run({.x = rows}), run({input})));
                }
            }
        }
    }
}

TEST_CASE("gpu stream: experts of one to four rows beside the kernels for a few rows, one of them not here") {
    if (!has_stream_device()) return;
    Fixture f(Arithmetic::fast);
    using Sums = ExpertsOfRows::Sums;
    constexpr backend::Activation k_clamped = {.alpha = 1.702F, .limit = 0.25F};
    for (const Format format : stream_formats()) {
        ExpertsOfRows experts(f, format, format == Format::q8_0 ? k_clamped : backend::Activation{});
        std::vector<float> of_four;
        for (const StreamDevice& device : some_stream_devices(format)) {
            for (const int64_t n : {4, 1}) {
                for (const Sums sums : {Sums::added, Sums::set, Sums::none}) {
                    if (sums != Sums::added && format != Format::q8_0) continue;
                    INFO(traits(format).name << ", " << n << " rows, sums " << static_cast<int>(sums) << ", "
                                             << device.shared_bytes << " bytes");
                    const std::vector<float> y = experts.run(n, sums, false, &device);
                    // An activated value may be rounded to another code where sums differ in the last bit.
                    CHECK(distance(experts.run(n, sums, false, nullptr), y) < 5e-4);
                    if (format == Format::q8_0) CHECK(same_bits(experts.run(n, sums, true, &device), y));
                    CHECK(same_bits(experts.run(n, sums, false, &device, true), y));
                    if (sums != Sums::added) continue;
                    if (of_four.empty()) of_four = y;
                    CHECK(same_bits(row_of(y, 0, ExpertsOfRows::k_hidden),
                                    row_of(of_four, 0, ExpertsOfRows::k_hidden)));
                }
            }
        }
    }
}

TEST_CASE("gpu stream: slots in tiles have the bits of slots that are multiplied alone") {
    if (!has_stream_device()) return;
    Fixture f(Arithmetic::fast);
    using Sums = ExpertsOfRows::Sums;
    for (const Format format : stream_formats()) {
        ExpertsOfRows experts(f, format, {});
        const int64_t n = ExpertsOfRows::k_rows;
        const std::vector<float> expected = experts.run(n, Sums::none, false, nullptr);
        for (const StreamDevice& device : some_stream_devices(format)) {
            INFO(traits(format).name << ", " << device.shared_bytes << " bytes");
            const std::vector<float> y = experts.run_tiles(n, device);
            CHECK(distance(expected, y) < 5e-4);
            constexpr int64_t k_width = 4 * ExpertsOfRows::k_used * ExpertsOfRows::k_hidden;
            CHECK(same_bits(row_of(experts.run(4, Sums::none, false, &device), 0, k_width),
                            row_of(y, 0, k_width)));
        }
    }
}

TEST_CASE(
    "gpu stream: with the path, a model's logits are as near the reference's, for one row and for several") {
    if (!has_stream_device()) return;
    const auto logits_with = [](const char* paths, const std::string& model, size_t chunk) {
        const SetLaunchPaths set(paths);
        return logits(open_on(model, {0}, Arithmetic::fast), Format::f16, 5, chunk);
    };
    struct Case {
        std::string model;
        size_t chunk;
    };
    for (const Case& c : {Case{k_models[0], 1}, Case{k_models[0], 5}, Case{k_models[1], 4}}) {
        INFO(c.model << ", " << c.chunk << " rows");
        // Where sums differ in the last bit, an activated value may be rounded to another code.
        const std::vector<float> exact =
            logits(open_on(c.model, {}, Arithmetic::exact), Format::f16, 5, c.chunk);
        const double without = distance(exact, logits_with("", c.model, c.chunk));
        const double with = distance(exact, logits_with("stream", c.model, c.chunk));
        CHECK(with < 1.25 * without);
    }
}

TEST_CASE("gpu stream: the path's tiles are counted as work space, and are there only with the path") {
    if (!has_stream_device()) return;
    const auto bytes_with = [](const char* paths) {
        const SetLaunchPaths set(paths);
        const auto device = cuda::make_cuda_backend(0, Arithmetic::fast);
        const auto stream = device->reserve(k_limits);
        CHECK(device->memory().used(backend::MemoryUse::work) == device->step_bytes(k_limits));
        return static_cast<int64_t>(device->step_bytes(k_limits));
    };
    const int64_t n_slots = k_limits.n_rows * k_limits.n_expert_used;
    const int64_t more =
        cuda::fast::most_expert_tiles(n_slots, k_limits.n_expert, cuda::fast::k_stream_tile_slots) -
        cuda::fast::most_expert_tiles(n_slots, k_limits.n_expert);
    const int64_t more_bytes = more * static_cast<int64_t>(sizeof(cuda::fast::ExpertTile));
    CHECK(std::abs(bytes_with("stream") - bytes_with("") - more_bytes) <= 256);  // aligned
}

TEST_CASE("gpu stream: what does not fit a block's memory, or is no whole groups, is not taken") {
    if (!has_stream_device()) return;
    Fixture f(Arithmetic::fast);
    const auto takes = [&](int64_t cols, int64_t n, const StreamDevice& device) {
        ThreeMatrices matrices(f, Format::q8_0, cols);
        const Q8Block* input = quantized(f, std::vector<float>(static_cast<size_t>(n * cols), 1.0F), n, cols);
        bool is_taken = false;
        const std::vector<float> y = matrices.run(n, [&](const Products& products) {
            is_taken = cuda::fast::linear_stream(nullptr, products, {input}, n, device);
        });
        // Nothing is launched then.
        CHECK(std::ranges::all_of(y, [](float value) { return value == 0.25F; }) == !is_taken);
        return is_taken;
    };
    const StreamDevice small = {k_blocks, k_small_shared_bytes};
    CHECK(takes(512, 1, small));
    CHECK_FALSE(takes(544, 1, small));
    CHECK_FALSE(takes(512, 1, {}));
    CHECK_FALSE(takes(512, 5, small));
    CHECK(takes(8192, 1, small));
    CHECK_FALSE(takes(8192, 4, small));
    // Floats that are not aligned, and those that results overwrite: the first or the last ones.
    ThreeMatrices matrices(f, Format::q8_0, 512);
    const auto takes_floats = [&](int64_t shift, int64_t y_at) {
        float* x = f.put(std::vector<float>(4096, 1.0F));
        bool is_taken = false;
        matrices.run(2, [&](const Products& products) {
            Products own = products;
            own.y[1] = x + y_at;
            is_taken = cuda::fast::linear_stream(nullptr, own, {.x = x + shift}, 2, small);
        });
        return is_taken;
    };
    CHECK(takes_floats(512, 0));
    CHECK(takes_floats(512, 512 + 2 * 512));
    CHECK(takes_floats(512, 512 - 2 * 48));
    CHECK_FALSE(takes_floats(513, 0));
    CHECK_FALSE(takes_floats(512, 512 + 2 * 512 - 1));
    CHECK_FALSE(takes_floats(512, 512 - 2 * 48 + 1));
}

}  // namespace minim::test
