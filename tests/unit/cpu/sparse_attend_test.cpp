// SPDX-License-Identifier: Apache-2.0
// Block-sparse attention of the CPU and of the reference.
#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <memory>
#include <vector>

#include "base/thread_pool.h"
#include "cpu/cpu_backend.h"
#include "reference/reference_backend.h"
#include "support/catch.h"
#include "support/sparse_attention.h"
#include "unit/cpu/support.h"

namespace minim::test {
namespace {

constexpr Format k_formats[] = {Format::f32, Format::f16, Format::bf16, Format::q8_0, Format::q4_0};

SparseModel small_model(Format format = Format::f32) {
    return {.n_head = 4,
            .head_dim = 32,
            .rotary = 16,
            .sparse = {.n_head = 2, .dim = 32, .block = 16, .top = 4},
            .k_format = format,
            .v_format = format};
}

// Rounded queries, of CPU kernels for keys that are codes.
double largest_error(const SparseModel& model) {
    return traits(model.k_format).block_elems > 1 ? 2e-2 : 2e-5;
}

// Compares some rows with the formulas, those around the borders of blocks among them.
void check_rows(const SparseModel& model, const SparseRows& rows, SparseSequence& sequence,
                const std::vector<float>& o) {
    const std::vector<std::vector<std::byte>> pages = sequence.contents();
    const int64_t block = model.sparse.block;
    const int64_t dense = model.sparse.top * block;
    std::vector<int64_t> positions = {0, 1, block - 1, block, dense - 1, dense, dense + 1, rows.n - 1};
    for (int64_t p = dense + block - 1; p < rows.n; p += std::max(rows.n / 8, int64_t{1}))
        positions.push_back(p);
    int64_t n_unclear = 0;
    for (const int64_t p : positions) {
        if (p >= rows.n) continue;
        INFO("position " << p);
        const PlainRow plain = attend_plainly(model, rows, pages, p);
        n_unclear += plain.margin < 1e-4 ? 1 : 0;
        if (plain.margin < 1e-4) continue;
        double worst = 0.0;
        const float* row = o.data() + p * model.n_head * model.head_dim;
        for (size_t i = 0; i < plain.o.size(); ++i)
            worst = std::max(worst, std::abs(static_cast<double>(row[i]) - plain.o[i]));
        CHECK(worst <= largest_error(model));
    }
    CHECK(n_unclear <= 2);
}

// Rows whose scores of blocks are given, and whose values say which blocks were attended to: without rotation, queries are 0, so that
// all attended positions have one weight, and column b of a value is 1 in block b.
struct TellingRows {
    SparseModel model;
    SparseRows rows;

    TellingRows(const backend::SparseAttention& shape, int64_t n)
        : model{.n_head = shape.n_head, .head_dim = 64, .rotary = 0, .sparse = shape}, rows(model, n, 1) {
        for (auto* norm : {&rows.q_norm, &rows.k_norm, &rows.index_q_norm, &rows.index_k_norm})
            std::ranges::fill(*norm, 1.0F);
        std::ranges::fill(rows.q, 0.0F);
        std::ranges::fill(rows.v, 0.0F);
        for (int64_t p = 0; p < n; ++p)
            for (int64_t g = 0; g < shape.n_head; ++g)
                rows.v[(p * shape.n_head + g) * 64 + p / shape.block] = 1.0F;
        // Normalised: the component of the head's number alone.
        std::ranges::fill(rows.index_q, 0.0F);
        for (int64_t i = 0; i < n * shape.n_head; ++i) rows.index_q[i * shape.dim + i % shape.n_head] = 1.0F;
        for (int64_t p = 0; p < n; ++p) set_score(p, 0.0F);
    }
    // Sets the product of the key of a position with the queries of all index heads, in the order of scores between -1 and 1, or of
    // one.
    void set_score(int64_t p, float score) {
        for (int64_t g = 0; g < model.sparse.n_head; ++g) set_score(p, g, score);
    }
    void set_score(int64_t p, int64_t head, float score) {
        float* key = rows.index_k.data() + p * model.sparse.dim;
        const int64_t n_head = model.sparse.n_head;
        if (head == 0) std::fill_n(key, model.sparse.dim, 0.0F);
        key[head] = score;
        // The last component makes all keys equally long.
        float rest = static_cast<float>(n_head);
        for (int64_t g = 0; g < n_head; ++g) rest -= key[g] * key[g];
        key[model.sparse.dim - 1] = std::sqrt(rest);
    }
    // Returns the blocks that the last row attends to with the first query head of an index head.
    std::vector<int64_t> blocks(const backend::Backend& device, int64_t head = 0) const {
        SparseSequence sequence(device, model, rows, rows.n);
        const std::vector<float> o = sequence.attend_all(rows.n);
        const float* row = o.data() + ((rows.n - 1) * model.n_head + head) * 64;
        std::vector<int64_t> attended;
        for (int64_t b = 0; b < 64; ++b)
            if (row[b] > 0.0F) attended.push_back(b);
        return attended;
    }
};

// The CPU, at its best and its plainest, and the reference.
struct Devices {
    ThreadPool pool{2};
    std::vector<std::unique_ptr<backend::HostDevice>> all;
    Devices() {
        all.push_back(reference::make_reference_backend());
        all.push_back(cpu::make_cpu_backend(pool, detected_cpu_level()));
        all.push_back(cpu::make_cpu_backend(pool, CpuLevel::scalar));
    }
};

using Blocks = std::vector<int64_t>;

}  // namespace

void check_block_sizes(std::initializer_list<int64_t> blocks) {
    const Devices devices;
    for (const int64_t block : blocks) {
        SparseModel model = small_model(block % 64 == 0 ? Format::f16 : Format::f32);
        model.sparse.block = block;
        model.sparse.top = block >= 512 ? 2 : 4;
        const int64_t n = model.sparse.top * block + block / 2 + 137;
        const SparseRows rows(model, n, static_cast<uint32_t>(block));
        for (const auto& device : devices.all) {
            if (device->name() == "reference" && n > 1200) continue;  // which takes seconds
            INFO(device->name() << " block " << block);
            SparseSequence sequence(*device, model, rows, n);
            check_rows(model, rows, sequence, sequence.attend_all(n));
        }
    }
}

TEST_CASE("sparse attention agrees with the formulas for every size of blocks") {
    check_block_sizes({16, 32, 64, 128, 256});
}

TEST_CASE("sparse attention agrees with the formulas for large blocks", "[slow-emulated]") {
    check_block_sizes({512, 1024});
}

TEST_CASE("sparse attention agrees with the formulas in every format of the KV cache") {
    const Devices devices;
    for (const Format k : k_formats) {
        for (const Format v : {k, Format::f16}) {
            SparseModel model = small_model(k);
            model.v_format = v;
            const SparseRows rows(model, 300, 7);
            for (const auto& device : devices.all) {
                INFO(device->name() << " K " << traits(k).name << " V " << traits(v).name);
                SparseSequence sequence(*device, model, rows, rows.n);
                check_rows(model, rows, sequence, sequence.attend_all(rows.n));
            }
        }
    }
}

TEST_CASE(
    "sparse attention of index keys that are smaller or larger than heads, with more local and first "
    "blocks") {
    const Devices devices;
    for (const int64_t dim : {16, 128}) {
        for (const auto& [local, init] : {std::pair(2, 0), std::pair(1, 2), std::pair(3, 1)}) {
            SparseModel model = small_model();
            model.n_head = 6;
            model.sparse = {.n_head = 3, .dim = dim, .block = 32, .top = 5, .local = local, .init = init};
            const SparseRows rows(model, 400, static_cast<uint32_t>(dim + local));
            for (const auto& device : devices.all) {
                INFO(device->name() << " dim " << dim << " local " << local << " init " << init);
                SparseSequence sequence(*device, model, rows, rows.n);
                check_rows(model, rows, sequence, sequence.attend_all(rows.n));
            }
        }
    }
}

TEST_CASE("sparse attention: the bits of a row depend on no chunk, number of threads or instruction set") {
    for (const Format format : k_formats) {
        const SparseModel model = small_model(format);
        const SparseRows rows(model, 151, 3);
        const ThreadPool one(1);
        const auto scalar = cpu::make_cpu_backend(one, CpuLevel::scalar);
        SparseSequence reference(*scalar, model, rows, rows.n);
        const std::vector<float> expected = reference.attend_all(rows.n);
        const auto pages = reference.contents();
        for (const CpuLevel level : cpu_levels()) {
            for (const int32_t n_threads : {1, 2, 3}) {
                const ThreadPool pool(n_threads);
                const auto device = cpu::make_cpu_backend(pool, level);
                for (const int64_t chunk : {int64_t{1}, int64_t{7}, int64_t{70}, rows.n}) {
                    // Every pair of a chunk and a number of threads for one level, one pair for the others.
                    const bool is_one_pair = n_threads == 2 && chunk == 7;
                    if (level != detected_cpu_level() && !is_one_pair) continue;
                    INFO(traits(format).name << " " << to_string(level) << " threads " << n_threads
                                             << " chunk " << chunk);
                    SparseSequence sequence(*device, model, rows, chunk);
                    CHECK(same_bits(sequence.attend_all(chunk), expected));
                    CHECK(sequence.contents() == pages);
                }
            }
        }
    }
}

TEST_CASE("a row of the reference's sparse attention has the same bits whatever the chunks") {
    const SparseModel model = small_model(Format::f16);
    const SparseRows rows(model, 150, 4);
    const auto device = reference::make_reference_backend();
    SparseSequence whole(*device, model, rows, rows.n);
    const std::vector<float> expected = whole.attend_all(rows.n);
    for (const int64_t chunk : {1, 7, 70}) {
        SparseSequence sequence(*device, model, rows, chunk);
        CHECK(same_bits(sequence.attend_all(chunk), expected));
    }
}

TEST_CASE("a decoded row attends to chosen blocks of several spans with the bits of a prompt's",
          "[slow-emulated]") {
    for (const int64_t block : {128, 1024}) {
        SparseModel model = small_model(Format::f16);
        model.sparse.block = block;
        model.sparse.top = block == 128 ? 11 : 2;  // more than a span
        const SparseRows rows(model, (model.sparse.top + 1) * block + 5, 5);
        const ThreadPool one(1);
        const auto alone = cpu::make_cpu_backend(one, detected_cpu_level());
        SparseSequence reference(*alone, model, rows, rows.n);
        const std::vector<float> expected = reference.attend_all(rows.n);
        const int64_t begin = rows.n - 5;
        for (const int32_t n_threads : {1, 2, 3}) {
            const ThreadPool pool(n_threads);
            const auto device = cpu::make_cpu_backend(pool, detected_cpu_level());
            SparseSequence sequence(*device, model, rows, begin);
            sequence.attend(0, begin);
            std::vector<float> o;
            for (int64_t p = begin; p < rows.n; ++p) {
                const std::vector<float> row = sequence.attend(p, 1);
                o.insert(o.end(), row.begin(), row.end());
            }
            CHECK(same_bits(o, std::span(expected).last(o.size())));
        }
    }
}

TEST_CASE("a row whose blocks are all chosen has the bits of dense attention") {
    const Devices devices;
    SparseModel model = small_model(Format::f16);
    const SparseRows rows(model, 200, 6);
    const int64_t n_dense = model.sparse.top * model.sparse.block;
    for (const auto& device : devices.all) {
        INFO(device->name());
        SparseSequence sparse(*device, model, rows, rows.n);
        SparseSequence dense(*device, model, rows, rows.n);
        const std::vector<float> a = sparse.attend_all(rows.n);
        const std::vector<float> b = dense.attend_all(rows.n, true);
        const int64_t row = model.n_head * model.head_dim;
        CHECK(same_bits(std::span(a).first(n_dense * row), std::span(b).first(n_dense * row)));
        // The next row leaves out a block.
        CHECK_FALSE(
            same_bits(std::span(a).subspan(n_dense * row, row), std::span(b).subspan(n_dense * row, row)));
    }
}

TEST_CASE("a row attends to the blocks of the highest scores, its own among them") {
    const Devices devices;
    for (const auto& device : devices.all) {
        INFO(device->name());
        TellingRows rows({.n_head = 1, .dim = 16, .block = 16, .top = 4}, 10 * 16);
        for (const auto& [p, score] : {std::pair(3, 0.5F), std::pair(37, 0.4F), std::pair(95, 0.6F)})
            rows.set_score(p, score);
        CHECK(rows.blocks(*device) == Blocks{0, 2, 5, 9});
        // A fifth block is not attended to besides the own one, which has the lowest score.
        rows.set_score(80, 0.45F);
        rows.set_score(64, 0.7F);
        for (int64_t p = 144; p < 160; ++p) rows.set_score(p, -0.9F);
        CHECK(rows.blocks(*device) == Blocks{0, 4, 5, 9});
        // The highest score of a block counts, not its sum or its first one.
        for (int64_t p = 16; p < 32; ++p) rows.set_score(p, 0.49F);
        CHECK(rows.blocks(*device) == Blocks{0, 4, 5, 9});
        rows.set_score(31, 0.51F);
        CHECK(rows.blocks(*device) == Blocks{1, 4, 5, 9});
    }
}

TEST_CASE("the unfinished block at the end has the scores of its own positions only") {
    const Devices devices;
    for (const auto& device : devices.all) {
        INFO(device->name());
        // Row 99 of 112 in one batch: later positions of its block, with the highest scores, are stored already. With two local blocks
        // its own is chosen in any case, so a score of the future would show only in the order; with init blocks neither.
        TellingRows rows({.n_head = 1, .dim = 16, .block = 16, .top = 3}, 112);
        for (int64_t p = 100; p < 112; ++p) rows.set_score(p, 0.9F);
        rows.set_score(20, 0.3F);
        rows.set_score(70, 0.2F);
        SparseSequence sequence(*device, rows.model, rows.rows, 112);
        const std::vector<float> o = sequence.attend_all(112);
        const float* row = o.data() + 99 * 64;
        CHECK(row[6] == Approx(4.0 / 36.0));  // positions 96 to 99
        CHECK(row[1] == Approx(16.0 / 36.0));
        CHECK(row[4] == Approx(16.0 / 36.0));
    }
}

TEST_CASE("of equal scores the lower block is chosen, and NaN counts as minus infinity") {
    const Devices devices;
    constexpr float k_nan = std::numeric_limits<float>::quiet_NaN();
    for (const auto& device : devices.all) {
        INFO(device->name());
        TellingRows rows({.n_head = 1, .dim = 16, .block = 16, .top = 4}, 10 * 16);
        CHECK(rows.blocks(*device) == Blocks{0, 1, 2, 9});
        rows.set_score(5 * 16, 0.1F);
        rows.set_score(7 * 16 + 15, 0.1F);
        CHECK(rows.blocks(*device) == Blocks{0, 5, 7, 9});
        const auto spoil = [&](int64_t p) { std::fill_n(rows.rows.index_k.begin() + p * 16, 16, k_nan); };
        // One position of a block that is NaN does not matter.
        spoil(5 * 16 + 3);
        CHECK(rows.blocks(*device) == Blocks{0, 5, 7, 9});
        // A block of NaN is below all others.
        for (int64_t p = 0; p < 16; ++p) spoil(p);
        CHECK(rows.blocks(*device) == Blocks{1, 5, 7, 9});
        for (int64_t p = 0; p < 160; ++p) spoil(p);
        CHECK(rows.blocks(*device) == Blocks{0, 1, 2, 9});
        std::fill_n(rows.rows.index_q.begin() + 159 * 16, 16, k_nan);
        CHECK(rows.blocks(*device) == Blocks{0, 1, 2, 9});
    }
}

TEST_CASE("first and local blocks are chosen whatever their scores, and count among the top") {
    const Devices devices;
    for (const auto& device : devices.all) {
        INFO(device->name());
        const auto blocks = [&](int64_t top, int64_t local, int64_t init) {
            TellingRows rows({.n_head = 1, .dim = 16, .block = 16, .top = top, .local = local, .init = init},
                             10 * 16);
            for (int64_t b = 0; b < 10; ++b) rows.set_score(16 * b + 7, b == 4 || b == 5 ? 0.5F : -0.5F);
            for (int64_t p = 0; p < 160; ++p)
                if (p / 16 != 4 && p / 16 != 5) rows.set_score(p, p / 16 == 3 ? 0.2F : -0.5F);
            return rows.blocks(*device);
        };
        CHECK(blocks(4, 1, 0) == Blocks{3, 4, 5, 9});
        CHECK(blocks(4, 2, 0) == Blocks{4, 5, 8, 9});
        CHECK(blocks(4, 1, 2) == Blocks{0, 1, 4, 9});
        CHECK(blocks(5, 3, 1) == Blocks{0, 4, 7, 8, 9});
        CHECK(blocks(3, 2, 2) == Blocks{0, 8, 9});
        CHECK(blocks(1, 1, 0) == Blocks{9});
        CHECK(blocks(2, 3, 0) == Blocks{8, 9});
    }
}

TEST_CASE("each index head chooses for the query heads of its own KV head") {
    const Devices devices;
    for (const auto& device : devices.all) {
        INFO(device->name());
        TellingRows rows({.n_head = 2, .dim = 16, .block = 16, .top = 2}, 6 * 16);
        rows.set_score(2 * 16, 0, 0.8F);
        rows.set_score(2 * 16, 1, 0.0F);
        rows.set_score(4 * 16, 0, 0.0F);
        rows.set_score(4 * 16, 1, 0.7F);
        CHECK(rows.blocks(*device, 0) == Blocks{2, 5});
        CHECK(rows.blocks(*device, 1) == Blocks{4, 5});
    }
}

TEST_CASE("index keys are stored beside K and V of their layer, normalised and rotated") {
    const Devices devices;
    for (const auto& device : devices.all) {
        INFO(device->name());
        const SparseModel model = small_model();
        const SparseRows rows(model, 70, 8);
        SparseSequence sequence(*device, model, rows, rows.n);
        sequence.attend_all(rows.n);
        const std::vector<std::byte> page = sequence.contents()[1];
        const backend::KvLayout layout = model.layout();
        const int64_t at = layout.index_offset(k_sparse_layer);
        std::vector<float> key(32);
        traits(Format::f32).decode_row(page.data() + at + 2 * layout.index_token_bytes(), 32, key.data());
        double squares = 0.0;
        for (int64_t i = 0; i < 32; ++i)
            squares += std::pow(static_cast<double>(rows.index_k[66 * 32 + i]), 2) / 32.0;
        for (int64_t i = 0; i < 32; ++i) {
            const auto normalised = [&](int64_t c) {
                return static_cast<double>(rows.index_k[66 * 32 + c]) / std::sqrt(squares + 1e-6) *
                       static_cast<double>(rows.index_k_norm[c]);
            };
            double exact = normalised(i);
            if (i < 16) {
                const double angle = 66.0 * static_cast<double>(rows.frequency[i % 8]);
                exact = i < 8 ? normalised(i) * std::cos(angle) - normalised(i + 8) * std::sin(angle)
                              : normalised(i) * std::cos(angle) + normalised(i - 8) * std::sin(angle);
            }
            CHECK(static_cast<double>(key[i]) == Approx(exact).epsilon(1e-5).margin(1e-5));
        }
        // The dense layer, and slots after the last position, are as they were.
        for (int64_t i = 0; i < layout.layer_bytes(0); ++i) REQUIRE(page[i] == std::byte{0xFF});
        CHECK(page[at + 6 * layout.index_token_bytes()] == std::byte{0xFF});
        CHECK(page.back() == std::byte{0xFF});
    }
}

}  // namespace minim::test
