// SPDX-License-Identifier: Apache-2.0
// Matrices that a folder stores in several tensors are found or refused, and read piece by piece.
#include <array>
#include <cstring>
#include <random>
#include <span>

#include "base/half.h"
#include "format/e4m3.h"
#include "layouts/layout.h"
#include "support/catch.h"
#include "support/helpers.h"
#include "support/packed_matrices.h"
#include "support/temporary_folder.h"

using namespace minim;
using namespace minim::test;

namespace {

constexpr int64_t k_rows = MatrixShape{}.rows;
constexpr int64_t k_cols = MatrixShape{}.cols;

// A checkpoint file with one matrix X, and an odd number of bytes before it.
struct Opened {
    TemporaryFolder folder;
    Lines lines;
    checkpoint::Checkpoint checkpoint;

    explicit Opened(Folder tensors, checkpoint::HostStorage how = checkpoint::HostStorage::owned)
        : checkpoint(open(std::move(tensors))) {
        if (how == checkpoint::HostStorage::mapped) checkpoint.map();
    }
    std::optional<layouts::AssembledRows> find(int64_t rows = k_rows, int64_t cols = k_cols,
                                               const layouts::PackingHints& hints = {}) const {
        return layouts::find_assembled([&](const std::string& name) { return checkpoint.find(name); },
                                       "X.weight", rows, cols, hints);
    }

  private:
    checkpoint::Checkpoint open(Folder tensors) {
        tensors["A"] = bytes_of("U8", {13}, 13, 9);
        write(tensors, folder / "model.safetensors");
        return checkpoint::Checkpoint::open(folder / "model.safetensors", lines.log);
    }
};

std::vector<std::byte> all_rows(const Opened& opened) {
    const layouts::AssembledRows matrix = *opened.find();
    std::vector<std::byte> rows(static_cast<size_t>(matrix.rows * matrix.row_bytes));
    layouts::read_assembled(opened.checkpoint, matrix, 0, rows);
    return rows;
}

std::vector<float> decoded(const Opened& opened) {
    const std::vector<std::byte> rows = all_rows(opened);
    std::vector<float> out(k_rows * k_cols);
    decode_rows(opened.find()->format, rows.data(), k_rows, opened.find()->row_bytes, k_cols, out.data());
    return out;
}

void expect_refusal(const Folder& tensors, Status status, std::string_view part, int64_t rows = k_rows,
                    int64_t cols = k_cols) {
    const Opened opened(tensors);
    expect_error(status, part, [&] { static_cast<void>(opened.find(rows, cols)); });
}

}  // namespace

TEST_CASE("the tensors beside a weight show how it is packed") {
    using layouts::Method;
    const auto is = [](const Folder& tensors, Method method, int64_t group = 0) {
        const Opened opened(tensors);
        const auto matrix = opened.find();
        return matrix->method == method && matrix->group == group;
    };
    CHECK(is(fp8(floats({2, 2}, 4)), Method::fp8));
    CHECK(is(fp8(floats({2, 2}, 4), "X.weight_scale"), Method::fp8));
    CHECK(is(fp8(floats({k_rows}, k_rows)), Method::fp8));
    CHECK(is(fp8(floats({k_rows, 1}, k_rows)), Method::fp8));
    CHECK(is(fp8(floats({}, 1)), Method::fp8));
    CHECK(is(fp8(floats({1}, 1)), Method::fp8));
    CHECK(is(mxfp8(), Method::mxfp8, 32));
    CHECK(is(nvfp4(), Method::nvfp4, 16));
    CHECK(is(packed_nvfp4(), Method::nvfp4, 16));
    CHECK(is(mxfp4(), Method::mxfp4, 32));
    CHECK(is(awq(), Method::integers, 128));
    CHECK(is(int4(64), Method::integers, 64));
    CHECK(is(gptq(4, 32), Method::integers, 32));
    CHECK_FALSE(Opened({{"X.weight", floats({2, 2}, 4)}}).find());
    CHECK_FALSE(Opened(Folder()).find());
}

TEST_CASE("integers are stored in the smallest format that represents them exactly") {
    const auto format_of = [](const Folder& tensors, const layouts::PackingHints& hints = {}) {
        return Opened(tensors).find(k_rows, k_cols, hints)->format;
    };
    layouts::PackingHints symmetric;
    symmetric.symmetric = true;
    CHECK(format_of(int4(32)) == Format::q4_0);
    CHECK(format_of(int4(64)) == Format::int4_s64);
    CHECK(format_of(int4(128)) == Format::int4_s128);
    CHECK(format_of(int4(256)) == Format::int4_row);
    CHECK(format_of(int4(64, "F32")) == Format::int4_w32);
    CHECK(format_of(int4(256, "F32")) == Format::int4_row);
    CHECK(format_of(gptq(4, 32)) == Format::int4_z32);
    CHECK(format_of(gptq(4, 32), symmetric) == Format::q4_0);
    CHECK(format_of(gptq(4, 64)) == Format::int4_z64);
    CHECK(format_of(gptq(4, 128)) == Format::int4_z128);
    CHECK(format_of(gptq(4, 256)) == Format::int4_z128);
    CHECK(format_of(gptq(8, 32)) == Format::int8_z32);
    CHECK(format_of(gptq(8, 64)) == Format::int8_z64);
    CHECK(format_of(gptq(8, 256)) == Format::int8_z128);
    CHECK(format_of(gptq(8, 32), symmetric) == Format::q8_0);
    CHECK(format_of(gptq(8, 64), symmetric) == Format::int8_s64);
    CHECK(format_of(gptq(8, 128), symmetric) == Format::int8_s128);
    CHECK(format_of(gptq(8, 256), symmetric) == Format::int8_row);
    layouts::PackingHints ordered;
    ordered.orders_inputs = true;
    CHECK(format_of(gptq(4, 32), ordered) == Format::f32);
    ordered.symmetric = true;
    Folder scales_of_8_bits = gptq(4, 32);
    scales_of_8_bits["X.scales"] = half_floats("BF16", {k_cols / 32, k_rows}, k_rows * k_cols / 32);
    CHECK(format_of(scales_of_8_bits, ordered) == Format::f16);
}

TEST_CASE("config and tensors that contradict each other are refused by the tensor's name") {
    const auto refused = [](const Folder& tensors, const layouts::PackingHints& hints, Status status,
                            std::string_view part) {
        const Opened opened(tensors);
        expect_error(status, part, [&] {
            const auto matrix = opened.find(k_rows, k_cols, hints);
            std::vector<std::byte> rows(static_cast<size_t>(matrix->rows * matrix->row_bytes));
            layouts::read_assembled(opened.checkpoint, *matrix, 0, rows);
        });
    };
    Folder both = int4(32);
    both["X.qweight"] = awq().at("X.qweight");
    refused(both, {}, Status::format, "tensors X.weight_packed and X.qweight both hold one matrix");

    layouts::PackingHints hints;
    hints.groups = {{8, 32}, {4, 128}};
    hints.text = "gptq: some";
    refused(int4(32), hints, Status::format,
            "tensor X.weight_packed holds 4 bits in groups of 32 inputs, which config.json");

    hints = {};
    hints.symmetric = true;
    refused(gptq(4, 32), hints, Status::format, "tensor X.qzeros has a zero point of");

    Folder order = gptq(4, 32);
    std::swap(order.at("X.g_idx").data[0], order.at("X.g_idx").data[4 * 40]);
    refused(order, {}, Status::format, "tensor X.g_idx has inputs out of order (input 0 in group 1)");
    hints = {};
    hints.orders_inputs = true;
    order.at("X.g_idx").data[8] = std::byte{99};
    refused(order, hints, Status::format, "tensor X.g_idx puts input 2 into group 99 of 8");

    Folder nan = int4(32);
    nan.at("X.weight_scale").data[6] = std::byte{0xC0};
    nan.at("X.weight_scale").data[7] = std::byte{0x7F};
    refused(nan, {}, Status::format, "tensor X.weight_scale has NaN in rows 0 to 15");
    nan = mxfp4();
    nan.at("X.weight_scale").data[3] = std::byte{0xFF};
    refused(nan, {}, Status::format, "tensor X.weight_scale has NaN in rows 0 to 15");

    Folder shape = int4(32);
    shape.at("X.weight_scale").shape = {k_rows / 2, k_cols / 32 * 2};
    refused(shape, {}, Status::format, "tensor X.weight_scale has shape");
    shape = int4(32);
    shape.at("X.weight_scale").shape = {k_rows, 5};
    shape.at("X.weight_scale").data.resize(k_rows * 5 * 2);
    refused(shape, {}, Status::format, "tensor X.weight_scale has 5 groups for rows of 256 inputs");
    shape = int4(32);
    shape.at("X.weight_scale").shape = {k_rows, 16};
    shape.at("X.weight_scale").data.resize(k_rows * 16 * 2);
    refused(shape, {}, Status::unsupported, "in groups of 16 inputs");
}

TEST_CASE("a stated shape is compared with the matrix") {
    const auto with_shape = [](const std::string& type, const auto& numbers) {
        const auto bytes = std::as_bytes(std::span(numbers));
        Folder folder = int4(32);
        folder["X.weight_shape"] = {
            type, {static_cast<int64_t>(numbers.size())}, {bytes.begin(), bytes.end()}};
        return folder;
    };
    CHECK_NOTHROW(all_rows(Opened(with_shape("I64", std::array<int64_t, 2>{k_rows, k_cols}))));
    CHECK_NOTHROW(all_rows(Opened(with_shape("I32", std::array<int32_t, 2>{k_rows, k_cols}))));
    const auto refused = [](const Folder& tensors, std::string_view part) {
        const Opened opened(tensors);
        expect_error(Status::format, part, [&] { static_cast<void>(all_rows(opened)); });
    };
    refused(with_shape("I64", std::array<int64_t, 2>{k_cols, k_rows}),
            "tensor X.weight_shape says [256, 152], tensor X.weight_packed is [152, 256]");
    refused(with_shape("I32", std::array<int32_t, 2>{k_rows, -1}), "tensor X.weight_shape says [152, -1]");
    expect_refusal(with_shape("I64", std::array<int64_t, 3>{k_rows, k_cols, 1}), Status::format,
                   "tensor X.weight_shape has shape");
    expect_refusal(with_shape("F32", std::array<float, 2>{1, 2}), Status::unsupported,
                   "tensor X.weight_shape is of type F32");
}

TEST_CASE("tensors that are quantised otherwise than a file declares are refused with both names") {
    using layouts::Method;
    layouts::PackingHints hints;
    const auto found = [&](const Folder& tensors) { return Opened(tensors).find(k_rows, k_cols, hints); };
    const auto refused = [&](const Folder& tensors, std::string_view part) {
        const Opened opened(tensors);
        expect_error(Status::format, part, [&] { static_cast<void>(opened.find(k_rows, k_cols, hints)); });
    };
    hints.declarations = {{"config.json", {}, {}},
                          {"hf_quant_config.json",
                           {{Method::nvfp4, 16, "quant_algo NVFP4, group_size 16"}, {Method::fp8, 0, "FP8"}},
                           {}}};
    CHECK(found(nvfp4()));
    CHECK(found(packed_nvfp4()));
    CHECK(found(fp8(floats({}, 1))));
    refused(mxfp4(),
            "tensor X.weight_packed holds MXFP4 in groups of 32, hf_quant_config.json declares "
            "quant_algo NVFP4, group_size 16");
    refused(int4(64), "tensor X.weight_packed holds whole numbers in groups of 64, hf_quant_config.json");
    refused(awq(), "tensor X.qweight holds whole numbers in groups of 128, hf_quant_config.json");

    hints.declarations[1].entries[0].group = 32;
    refused(nvfp4(), "tensor X.weight holds NVFP4 in groups of 16, hf_quant_config.json");
    hints.declarations[1].modules.emplace("X", layouts::Declaration::Entry{Method::mxfp4, 0, "MXFP4"});
    CHECK(found(mxfp4()));
    refused(fp8(floats({}, 1)), "tensor X.weight holds FP8, hf_quant_config.json says MXFP4 of it");
}

TEST_CASE("FP8 weights have the scale of their block, their row or their matrix") {
    const auto check = [](const Stored& scales, const auto& scale_at,
                          const char* name = "X.weight_scale_inv") {
        const Folder folder = fp8(scales, name);
        const std::vector<float> out = decoded(Opened(folder));
        const std::vector<std::byte>& codes = folder.at("X.weight").data;
        for (int64_t n = 0; n < k_rows; ++n) {
            for (int64_t k = 0; k < k_cols; ++k) {
                const auto i = static_cast<size_t>(n * k_cols + k);
                REQUIRE(out[i] == e4m3_to_float(std::to_integer<uint8_t>(codes[i])) * scale_at(n, k));
            }
        }
    };
    const auto of_block = [](int64_t n, int64_t k) {
        return 0.25F + static_cast<float>(n / 128 * 2 + k / 128);
    };
    const auto of_row = [](int64_t n, int64_t) { return 0.25F + static_cast<float>(n); };
    check(floats({2, 2}, 4), of_block);
    check(floats({2, 2}, 4), of_block, "X.weight_scale");
    check(floats({k_rows}, k_rows), of_row);
    check(floats({k_rows, 1}, k_rows), of_row);
    check(floats({1}, 1), [](int64_t, int64_t) { return 0.25F; });
    Stored narrow = {"BF16", {}, std::vector<std::byte>(2)};
    const uint16_t bits = float_to_bf16(0.75F);
    std::memcpy(narrow.data.data(), &bits, sizeof(bits));
    check(narrow, [](int64_t, int64_t) { return 0.75F; });
}

TEST_CASE("AWQ's words hold eight outputs in their own order") {
    constexpr int k_order[8] = {0, 4, 1, 5, 2, 6, 3, 7};
    const auto nibble = [&](const Stored& words, int64_t row, int64_t n) {
        uint32_t word;
        std::memcpy(&word, words.data.data() + 4 * (row * (k_rows / 8) + n / 8), sizeof(word));
        return static_cast<int>(word >> (4 * k_order[n % 8]) & 15);
    };
    Folder folder = awq();
    for (const char* scale_type : {"F16", "F32"}) {  // F16: the fast way; F32: that of all integers
        folder["X.scales"] = half_floats(scale_type, {k_cols / 128, k_rows}, k_cols / 128 * k_rows);
        const std::vector<float> out = decoded(Opened(folder));
        for (int64_t n = 0; n < k_rows; ++n) {
            for (int64_t k = 0; k < k_cols; ++k) {
                const float scale = 1.0F + static_cast<float>((k / 128 * k_rows + n) % 64) / 64.0F;
                const int code =
                    nibble(folder.at("X.qweight"), k, n) - nibble(folder.at("X.qzeros"), k / 128, n);
                REQUIRE(out[n * k_cols + k] == scale * static_cast<float>(code));
            }
        }
    }
}

TEST_CASE("any piece of assembled rows has the bytes that it has in the whole") {
    for (const Folder& tensors :
         {fp8(floats({2, 2}, 4)), fp8(floats({k_rows}, k_rows)), nvfp4(), mxfp4(), awq()}) {
        const Opened opened(tensors);
        const std::vector<std::byte> whole = all_rows(opened);
        CHECK(all_rows(Opened(tensors, checkpoint::HostStorage::mapped)) == whole);
        const layouts::AssembledRows matrix = *opened.find();
        std::mt19937 random(1);
        for (int round = 0; round < 200; ++round) {
            const size_t from = random() % whole.size();
            const size_t count = random() % std::min<size_t>(whole.size() - from, 5000) + 1;
            std::vector<std::byte> piece(count);
            layouts::read_assembled(opened.checkpoint, matrix, from, piece);
            REQUIRE(std::equal(piece.begin(), piece.end(), whole.begin() + static_cast<int64_t>(from)));
        }
    }
}

TEST_CASE("the factor of a matrix multiplies or divides, as its format says") {
    const Opened multiplied(nvfp4());
    CHECK(multiplied.find()->factor(multiplied.checkpoint) == 0.5F);
    const Opened divided(packed_nvfp4());
    CHECK(divided.find()->factor(divided.checkpoint) == 0.25F);
    const Opened none(awq());
    CHECK(none.find()->factor(none.checkpoint) == 1.0F);
    Folder zeros = nvfp4();
    const float zero = 0.0F;
    zeros["X.weight_scale_2"] = stored({}, &zero);
    const Opened pruned(zeros);
    CHECK(pruned.find()->factor(pruned.checkpoint) == 0.0F);
    zeros = packed_nvfp4();
    zeros["X.weight_global_scale"] = stored({1}, &zero);
    const Opened endless(zeros);
    expect_error(Status::format, "tensor X.weight_global_scale is 0",
                 [&] { static_cast<void>(endless.find()->factor(endless.checkpoint)); });
    for (const float bad : {-1.0F, std::nanf(""), HUGE_VALF}) {
        Folder folder = nvfp4();
        folder["X.weight_scale_2"] = stored({}, &bad);
        const Opened opened(folder);
        expect_error(Status::format, "tensor X.weight_scale_2 is",
                     [&] { static_cast<void>(opened.find()->factor(opened.checkpoint)); });
    }
}

TEST_CASE("numbers that are none are refused with their tensor and rows") {
    Folder folder = fp8(floats({2, 2}, 4));
    folder.at("X.weight").data[151 * k_cols + 3] = std::byte{0xFF};
    expect_error(Status::format, "tensor X.weight has NaN in rows 144 to 151",
                 [&] { all_rows(Opened(folder)); });
    folder = nvfp4();
    folder.at("X.weight_scale").data[5] = std::byte{0x7F};
    expect_error(Status::format, "tensor X.weight_scale has NaN in rows 0 to 15",
                 [&] { all_rows(Opened(folder)); });
}

TEST_CASE("what is missing beside a weight, or of another shape or type, is named") {
    const auto without = [](Folder folder, const std::string& name) {
        folder.erase(name);
        return folder;
    };
    expect_refusal(without(nvfp4(), "X.weight_scale"), Status::format, "tensor X.weight_scale is missing");
    expect_refusal(without(nvfp4(), "X.weight_scale_2"), Status::format,
                   "tensor X.weight_scale_2 is missing");
    expect_refusal(without(mxfp4(), "X.weight_scale"), Status::format, "tensor X.weight_scale is missing");
    expect_refusal(without(awq(), "X.qzeros"), Status::format, "tensor X.qzeros is missing");
    expect_refusal(without(awq(), "X.scales"), Status::format, "tensor X.scales is missing");
    expect_refusal(fp8(floats({2, 3}, 6)), Status::format, "tensor X.weight_scale_inv has shape [2, 3]");
    expect_refusal(fp8(floats({2, 2}, 4)), Status::format, "tensor X.weight has shape [152, 256]",
                   k_rows + 8);
    expect_refusal(awq(), Status::format, "tensor X.scales has shape [2, 152]", k_rows + 8);
    expect_refusal(fp8(bytes_of("U8", {2, 2}, 4, 1), "X.weight_scale"), Status::format,
                   "tensor X.weight_scale has shape [2, 2]");

    Folder folder = mxfp4();
    folder.at("X.weight_packed").type = "I16";
    folder.at("X.weight_packed").shape.back() /= 2;
    expect_refusal(folder, Status::unsupported, "tensor X.weight_packed is of type I16");
    folder = {{"X.weight", bytes_of("F8_E4M3", {4, 96}, 4 * 96, 1)}, {"X.weight_scale", floats({}, 1)}};
    expect_refusal(folder, Status::unsupported, "rows of 96 inputs are not a multiple of 128", 4, 96);
}
