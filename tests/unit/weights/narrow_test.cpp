// SPDX-License-Identifier: Apache-2.0
// Parts of weights have the numbers of the whole: in every format and layout, read and placed.
#include "weights/narrow.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/thread_pool.h"
#include "cpu/cpu_backend.h"
#include "format/encode.h"
#include "format/expand.h"
#include "layouts/layout.h"
#include "reference/reference_backend.h"
#include "support/catch.h"
#include "support/gguf_writer.h"
#include "support/helpers.h"
#include "support/packed_matrices.h"
#include "weights/place.h"
#include "weights/reader.h"
#include "weights/stored_rows.h"

namespace minim::weights {
namespace {

using checkpoint::Checkpoint;
using test::Folder;

// Eight parts of columns are one block of 256 each; a part of rows need not be whole panels or words.
constexpr test::MatrixShape k_whole = {.rows = 48, .cols = 2048};
constexpr int64_t k_parts[] = {2, 4, 8};

// A checkpoint with a matrix X in one of the forms that files have.
struct Source {
    std::string name;
    std::function<std::string(const test::TemporaryFolder&)> write;  // returns the path
};

Source gguf_source(const FormatTraits& format) {
    return {std::string(format.name), [format](const test::TemporaryFolder& folder) {
                std::mt19937 random(format.gguf_type);
                std::vector<std::byte> data(
                    static_cast<size_t>(k_whole.rows * row_bytes(format.format, k_whole.cols)));
                for (std::byte& byte : data) byte = static_cast<std::byte>(random() & 255U);
                test::GgufWriter writer;
                writer.add_f32("A", {3}, {1, 2, 3});
                writer.add_f32("X.scale", {1}, {0.5F});
                writer.add_tensor({"X.weight",
                                   format.gguf_type,
                                   {static_cast<uint64_t>(k_whole.cols), static_cast<uint64_t>(k_whole.rows)},
                                   std::move(data)});
                writer.write(folder / "x.gguf");
                return folder / "x.gguf";
            }};
}

Source folder_source(std::string name, Folder tensors) {
    tensors["A"] = test::bytes_of("U8", {13}, 13, 9);
    return {std::move(name), [tensors = std::move(tensors)](const test::TemporaryFolder& folder) {
                test::write(tensors, folder / "model.safetensors");
                return folder / "model.safetensors";
            }};
}

std::vector<Source> all_sources() {
    using namespace test;
    std::vector<Source> all;
    for (const FormatTraits& format : all_formats())
        if (format.decode_row != nullptr && format.gguf_type != k_no_gguf_type)
            all.push_back(gguf_source(format));
    constexpr MatrixShape x = k_whole;
    const auto add = [&](const char* name, Folder tensors) {
        all.push_back(folder_source(name, std::move(tensors)));
    };
    add("FP8 by block", fp8(floats({1, x.cols / 128}, x.cols / 128), "X.weight_scale_inv", x));
    add("FP8 by row", fp8(floats({x.rows}, x.rows), "X.weight_scale_inv", x));
    add("MXFP8", mxfp8(x));
    add("NVFP4", nvfp4(x));
    add("MXFP4", mxfp4(x));
    add("AWQ", awq(x));
    for (const int64_t group : {int64_t{32}, int64_t{64}, int64_t{128}, x.cols}) {
        const std::string of = " in groups of " + std::to_string(group);
        all.push_back(folder_source("INT4" + of, int4(group, "BF16", x)));
        all.push_back(folder_source("INT8" + of, int8(group, "BF16", x)));
        all.push_back(folder_source("GPTQ 4" + of, gptq(4, group, x)));
        all.push_back(folder_source("GPTQ 8" + of, gptq(8, group, x)));
    }
    add("INT4, float scales", int4(64, "F32", x));
    add("INT8, float scales", int8(64, "F32", x));
    return all;
}

struct OpenedMatrix {
    test::TemporaryFolder folder;
    test::Lines lines;
    Checkpoint checkpoint;
    Reader reader;
    WeightSpec whole;

    explicit OpenedMatrix(const Source& source, bool is_mapped = false)
        : checkpoint(Checkpoint::open(source.write(folder), lines.log)), reader(checkpoint), whole(matrix()) {
        if (is_mapped) checkpoint.map();
    }

  private:
    WeightSpec matrix() const {
        WeightSpec spec;
        spec.use = Use::product;
        spec.rows = k_whole.rows;
        spec.cols = k_whole.cols;
        const auto find = [this](const std::string& name) { return checkpoint.find(name); };
        if (auto assembled = layouts::find_assembled(find, "X.weight", spec.rows, spec.cols)) {
            spec.format = assembled->format;
            spec.source.tensor = assembled->codes;
            spec.source.assembled = std::make_shared<const layouts::AssembledRows>(std::move(*assembled));
        } else {
            spec.source.tensor = find("X.weight");
            spec.source.factor = find("X.scale");
            spec.format = *spec.source.tensor->format;
        }
        spec.row_bytes = row_bytes(spec.format, spec.cols);
        return spec;
    }
};

std::vector<std::byte> bytes_of(const Reader& reader, const WeightSpec& weight) {
    std::vector<std::byte> bytes(weight.bytes());
    reader.read(weight, 0, bytes);
    return bytes;
}

std::vector<float> decoded(const Reader& reader, const WeightSpec& weight) {
    std::vector<float> values(static_cast<size_t>(weight.rows * weight.cols));
    decode_rows(weight.format, bytes_of(reader, weight).data(), weight.rows, weight.row_bytes, weight.cols,
                values.data());
    return values;
}

// Returns whether the part has the numbers of the whole from this row and column on, bit for bit.
bool has_numbers_of(const std::vector<float>& whole, const std::vector<float>& part, int64_t n_cols,
                    int64_t row, int64_t col) {
    const int64_t n_rows = std::ssize(part) / n_cols;
    for (int64_t r = 0; r < n_rows; ++r) {
        const float* expected = whole.data() + (row + r) * k_whole.cols + col;
        if (std::memcmp(part.data() + r * n_cols, expected, static_cast<size_t>(n_cols) * sizeof(float)) != 0)
            return false;
    }
    return !part.empty();
}

std::vector<WeightSpec> all_parts(const WeightSpec& whole) {
    std::vector<WeightSpec> parts;
    for (const int64_t n : k_parts) {
        for (int64_t k = 0; k < n; ++k) {
            parts.push_back(rows_of(whole, {k * whole.rows / n, whole.rows / n}));
            parts.push_back(columns_of(whole, {k * whole.cols / n, whole.cols / n}));
        }
    }
    return parts;
}

// Places the weights on a host device, and returns them as rows in the order of the checkpoint.
struct Placed {
    std::vector<PlacedWeights> placed;

    Placed(const OpenedMatrix& opened, const DeviceWeights& part, Storage storage,
           const PlaceOptions& options)
        : placed(place(std::span(&part, 1), std::span(&storage, 1), options, opened.checkpoint,
                       opened.lines.log)) {}

    std::vector<std::byte> rows(const Reader& reader, const WeightSpec& weight, size_t i) const {
        const backend::Matrix& stored = placed[0].weights.matrices[i];
        WeightSpec as_stored = weight;
        as_stored.format = stored.format;
        as_stored.row_bytes = stored.row_bytes;
        std::vector<std::byte> rows(as_stored.bytes());
        read_stored_rows(as_stored, stored, reader, rows);
        return rows;
    }
};

std::vector<std::byte> unpacked_rows(const std::vector<std::byte>& rows, const WeightSpec& weight,
                                     Format format) {
    if (format == weight.format) return rows;
    std::vector<std::byte> out(static_cast<size_t>(weight.rows * row_bytes(format, weight.cols)));
    expand_rows(weight.format, rows.data(), weight.rows, weight.row_bytes, weight.cols, out.data());
    return out;
}

}  // namespace

TEST_CASE("a part of rows or columns decodes to those of the whole, in every format and layout") {
    const std::vector<Source> sources = all_sources();
    CHECK(sources.size() > 60);
    for (const Source& source : sources) {
        for (const bool is_mapped : {false, true}) {
            INFO(source.name << (is_mapped ? ", mapped" : ""));
            const OpenedMatrix opened(source, is_mapped);
            const WeightSpec& whole = opened.whole;
            const std::vector<float> values = decoded(opened.reader, whole);
            for (const int64_t n : k_parts) {
                const int64_t n_rows = whole.rows / n;
                const int64_t n_cols = whole.cols / n;
                for (int64_t k = 0; k < n; ++k) {
                    INFO("part " << k << " of " << n);
                    const WeightSpec rows = rows_of(whole, {k * n_rows, n_rows});
                    const WeightSpec columns = columns_of(whole, {k * n_cols, n_cols});
                    CHECK(has_numbers_of(values, decoded(opened.reader, rows), whole.cols, k * n_rows, 0));
                    CHECK(has_numbers_of(values, decoded(opened.reader, columns), n_cols, 0, k * n_cols));
                    const WeightSpec both = rows_of(columns, {k * n_rows, n_rows});
                    CHECK(bytes_of(opened.reader, both) ==
                          bytes_of(opened.reader, columns_of(rows, {k * n_cols, n_cols})));
                    CHECK(
                        has_numbers_of(values, decoded(opened.reader, both), n_cols, k * n_rows, k * n_cols));
                    CHECK(opened.reader.factor(columns) == opened.reader.factor(whole));
                    if (!is_mapped) continue;
                    CHECK(opened.reader.mapped(columns) == nullptr);
                    const std::byte* data = opened.reader.mapped(whole);
                    CHECK(opened.reader.mapped(rows) ==
                          (data == nullptr ? nullptr : data + k * n_rows * whole.row_bytes));
                }
            }
        }
    }
}

TEST_CASE("a part of a part of columns has the columns of the whole") {
    for (const Format format : {Format::q4_k, Format::iq4_ks}) {  // the rows of the second have headers
        const OpenedMatrix opened(gguf_source(traits(format)));
        const WeightSpec half = columns_of(opened.whole, {1024, 1024});
        CHECK(bytes_of(opened.reader, columns_of(half, {256, 512})) ==
              bytes_of(opened.reader, columns_of(opened.whole, {1280, 512})));
        const WeightSpec all = columns_of(opened.whole, {0, 2048});
        CHECK_FALSE(all.source.columns);
    }
}

TEST_CASE("any piece of a part of columns has the bytes that it has in the part") {
    std::vector<Source> sources = {gguf_source(traits(Format::iq4_ks)), gguf_source(traits(Format::q4_k))};
    sources.push_back(folder_source("AWQ", test::awq(k_whole)));
    sources.push_back(folder_source("INT8", test::int8(k_whole.cols, "BF16", k_whole)));
    std::mt19937 random(1);
    for (const Source& source : sources) {
        INFO(source.name);
        const OpenedMatrix opened(source);
        const WeightSpec part = columns_of(opened.whole, {512, 512});
        const std::vector<std::byte> all = bytes_of(opened.reader, part);
        for (int round = 0; round < 200; ++round) {
            const size_t from = random() % all.size();
            std::vector<std::byte> piece(random() % std::min<size_t>(all.size() - from, 3000) + 1);
            opened.reader.read(part, from, piece);
            REQUIRE(std::equal(piece.begin(), piece.end(), all.begin() + static_cast<int64_t>(from)));
        }
        opened.reader.read_ahead(part, 0, part.bytes());
    }
}

TEST_CASE("parts of an expert are cut out of a stack whose inputs are outside") {
    constexpr int64_t k_rows = 40;
    constexpr int64_t k_cols = 64;
    std::vector<float> values(2 * k_cols * k_rows);
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
    const test::TemporaryFolder folder;
    test::write({{"X", test::stored({2, k_cols, k_rows}, values.data())}}, folder / "model.safetensors");
    const test::Lines lines;
    const Checkpoint checkpoint = Checkpoint::open(folder / "model.safetensors", lines.log);
    const layouts::StackPart expert = {.n = 2, .index = 1, .stack_rows = k_rows, .transposed = true};
    const auto find = [&](const std::string& name) { return checkpoint.find(name); };
    auto assembled = layouts::find_stacked(find, "X", k_rows, k_cols, expert);
    REQUIRE(assembled);
    WeightSpec whole = {.rows = k_rows, .cols = k_cols, .row_bytes = assembled->row_bytes};
    whole.source.tensor = assembled->codes;
    whole.source.assembled = std::make_shared<const layouts::AssembledRows>(std::move(*assembled));
    const WeightSpec part = rows_of(columns_of(whole, {16, 8}), {21, 17});
    const std::vector<float> cut = decoded(Reader(checkpoint), part);
    for (int64_t r = 0; r < part.rows; ++r)
        for (int64_t c = 0; c < part.cols; ++c)
            REQUIRE(cut[static_cast<size_t>(r * part.cols + c)] ==
                    static_cast<float>((k_cols + 16 + c) * k_rows + 21 + r));
}

TEST_CASE("long rows are cut a few at a time") {
    // Rows of 256 KiB, more than are read at a time.
    constexpr test::MatrixShape k_long = {.rows = 40, .cols = int64_t{1} << 16};
    std::vector<float> values(static_cast<size_t>(k_long.size()));
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
    const test::TemporaryFolder folder;
    test::write({{"X.weight", test::stored({k_long.rows, k_long.cols}, values.data())}},
                folder / "model.safetensors");
    const test::Lines lines;
    const Checkpoint checkpoint = Checkpoint::open(folder / "model.safetensors", lines.log);
    const WeightSpec whole = {.rows = k_long.rows,
                              .cols = k_long.cols,
                              .row_bytes = row_bytes(Format::f32, k_long.cols),
                              .source = {.tensor = checkpoint.find("X.weight")}};
    const WeightSpec part = columns_of(whole, {1000, 3});
    const std::vector<float> cut = decoded(Reader(checkpoint), part);
    for (int64_t r = 0; r < k_long.rows; ++r)
        for (int64_t c = 0; c < 3; ++c)
            REQUIRE(cut[static_cast<size_t>(r * 3 + c)] == static_cast<float>(r * k_long.cols + 1000 + c));
}

TEST_CASE("a part of a vector has its elements, whatever type the file stores") {
    constexpr int64_t k_size = 96;
    for (const char* type : {"F32", "F16", "BF16"}) {
        for (const bool is_mapped : {false, true}) {
            INFO(type);
            const test::TemporaryFolder folder;
            const test::Lines lines;
            test::write({{"norm", test::half_floats(type, {k_size}, k_size)}}, folder / "model.safetensors");
            Checkpoint checkpoint = Checkpoint::open(folder / "model.safetensors", lines.log);
            if (is_mapped) checkpoint.map();
            const Reader reader(checkpoint);
            const WeightSpec whole = {.use = Use::vector,
                                      .rows = 1,
                                      .cols = k_size,
                                      .row_bytes = row_bytes(Format::f32, k_size),
                                      .source = {.tensor = checkpoint.find("norm")}};
            const std::vector<float> values = decoded(reader, whole);
            CHECK(values[40] == 1.0F + 40.0F / 64.0F);
            for (int64_t k = 0; k < 4; ++k) {
                const WeightSpec part = rows_of(whole, {k * 24, 24});
                CHECK(part.rows == 1);
                const std::vector<float> elements = decoded(reader, part);
                CHECK(std::equal(elements.begin(), elements.end(), values.begin() + k * 24));
                const WeightSpec last = rows_of(part, {20, 4});
                CHECK(decoded(reader, last)[3] == values[static_cast<size_t>(k * 24 + 23)]);
            }
            test::expect_error(Status::internal, "4 elements of tensor norm from 93 on: it has 96", [&] {
                rows_of(whole, {93, 4});
            });
            test::expect_error(Status::internal, "tensor norm is a vector", [&] {
                columns_of(whole, {0, 32});
            });
        }
    }
}

TEST_CASE("a range outside a matrix, or of broken blocks, is a fault of the caller") {
    const OpenedMatrix opened(gguf_source(traits(Format::q4_k)));
    const auto fails = [](std::string_view text, auto&& call) {
        test::expect_error(Status::internal, text, call);
    };
    fails("128 columns of tensor X.weight from 0 on: it has 2048, in units of 256", [&] {
        columns_of(opened.whole, {0, 128});
    });
    fails("256 columns of tensor X.weight from 128 on", [&] { columns_of(opened.whole, {128, 256}); });
    fails("256 columns of tensor X.weight from 2048 on", [&] { columns_of(opened.whole, {2048, 256}); });
    fails("0 columns of tensor X.weight", [&] { columns_of(opened.whole, {0, 0}); });
    fails("9 rows of tensor X.weight from 40 on: it has 48", [&] { rows_of(opened.whole, {40, 9}); });
    fails("1 rows of tensor X.weight from -1 on", [&] { rows_of(opened.whole, {-1, 1}); });
    fails("from 1 on", [&] { rows_of(opened.whole, {1, INT64_MAX}); });
}

TEST_CASE("parts are packed, unpacked and copied to a device as whole weights are") {
    const ThreadPool pool(2);
    const auto cpu = cpu::make_cpu_backend(pool, active_cpu_level());
    const auto device = reference::make_reference_backend();
    for (const Source& source : all_sources()) {
        INFO(source.name);
        const OpenedMatrix opened(source);
        if (!cpu->runs(opened.whole.format)) continue;
        const std::vector<WeightSpec> parts = all_parts(opened.whole);
        DeviceWeights part = {cpu.get(), {}, cpu.get()};
        for (const WeightSpec& weight : parts) part.weights.push_back(&weight);
        const auto check = [&](const DeviceWeights& on, Storage storage, const PlaceOptions& options) {
            const Placed placed(opened, on, storage, options);
            bool is_right = true;
            for (size_t i = 0; i < parts.size(); ++i) {
                const Format format = placed.placed[0].weights.matrices[i].format;
                is_right &= placed.rows(opened.reader, parts[i], i) ==
                            unpacked_rows(bytes_of(opened.reader, parts[i]), parts[i], format);
                is_right &= placed.placed[0].weights.matrices[i].scale == opened.reader.factor(opened.whole);
            }
            CHECK(is_right);
            return placed.placed[0].weights.matrices[1].format;
        };
        CHECK(check(part, Storage::memory, {.expand = Expand::off}) == opened.whole.format);
        const auto unpacked = unpacked_format(opened.whole.format);
        CHECK(check(part, Storage::memory, {.expand = Expand::on}) == unpacked.value_or(opened.whole.format));
        PlaceOptions in_file = {.packed_file = opened.folder / "packed", .part_hashes = {7}};
        check(part, Storage::packed, in_file);  // makes the file
        check(part, Storage::packed, in_file);  // maps it
        part.backend = device.get();
        part.host = nullptr;
        check(part, Storage::device, {});
    }
}

TEST_CASE("parts of columns are copied into memory or packed, never mapped") {
    const ThreadPool pool(2);
    const auto cpu = cpu::make_cpu_backend(pool, active_cpu_level());
    const OpenedMatrix opened(gguf_source(traits(Format::f32)));
    const WeightSpec rows = rows_of(opened.whole, {0, 8});
    const WeightSpec columns = columns_of(opened.whole, {0, 256});
    const auto chosen = [&](const WeightSpec& weight, std::optional<checkpoint::HostStorage> residence,
                            const std::string& packed_file = "") {
        const DeviceWeights part = {cpu.get(), {&weight}, cpu.get()};
        return choose_storage(std::span(&part, 1), residence, packed_file, opened.lines.log).front();
    };
    using checkpoint::HostStorage;
    CHECK(chosen(rows, HostStorage::mapped) == Storage::mapped);
    CHECK(chosen(columns, {}) == Storage::memory);
    CHECK(opened.lines.holding("copied") == 0);
    CHECK(chosen(columns, HostStorage::mapped) == Storage::memory);
    CHECK(opened.lines.holding("weights are copied, not mapped: this rank has some of their columns") == 1);
    CHECK(chosen(columns, {}, "F") == Storage::packed);
}

}  // namespace minim::weights
