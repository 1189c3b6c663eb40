// SPDX-License-Identifier: Apache-2.0
#include "convert/verify.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <vector>

#include "base/error.h"
#include "base/hasher.h"
#include "format/format.h"
#include "format/gather.h"

namespace minim::convert {
namespace {

constexpr int64_t k_verify_bytes = int64_t{16} << 20;

void check_header(const PartFile& file, const checkpoint::NewHeader& header) {
    std::vector<std::byte> bytes(header.bytes.size());
    file.read_at(0, bytes);
    if (bytes != header.bytes)
        fail_file(Reason::io, "{}: the header that was read back is not the one that was written",
                  file.path());
}

// Returns the first of some rows that has a number that is not finite; -1: none has.
int64_t first_not_finite(const PlannedTensor& tensor, std::span<const std::byte> rows, int64_t n_rows,
                         int64_t bytes, int64_t n_columns, const ThreadPool& threads,
                         std::vector<std::vector<float>>& scratch) {
    const FormatTraits& format = traits(tensor.type);
    if (format.decode_row == nullptr || n_columns == 0) return -1;
    for (std::vector<float>& values : scratch)  // a job must not allocate
        if (values.size() < static_cast<size_t>(n_columns)) values.resize(n_columns);
    std::atomic<int64_t> found{n_rows};
    threads.run(n_rows, [&](int64_t row, int32_t thread) {
        std::vector<float>& values = scratch[thread];
        format.decode_row(rows.data() + row * bytes, n_columns, values.data());
        const bool is_finite = std::all_of(values.begin(), values.begin() + n_columns,
                                           [](float value) { return std::isfinite(value); });
        int64_t lowest = found.load();
        while (!is_finite && row < lowest && !found.compare_exchange_weak(lowest, row)) {
        }
    });
    return found == n_rows ? -1 : found.load();
}

// Returns whether the scales in some bytes of a tensor are finite. Elements do not cross the bytes that are read together.
bool has_finite_scales(const Piece& piece, std::span<const std::byte> bytes) {
    if (piece.content == PieceContent::codes || piece.content == PieceContent::shape) return true;
    if (piece.type == "F8_E4M3") return !has_nan_e4m3(bytes);
    constexpr std::byte k_no_exponent{0xFF};
    if (piece.type == "U8") return std::ranges::find(bytes, k_no_exponent) == bytes.end();
    const FormatTraits& format = traits(piece.type == "BF16" ? Format::bf16 : Format::f32);
    const int64_t n = static_cast<int64_t>(bytes.size()) / format.block_bytes;
    std::vector<float> values(n);
    format.decode_row(bytes.data(), n, values.data());
    return std::ranges::all_of(values, [](float value) { return std::isfinite(value); });
}

void verify_pieces(const PlannedTensor& tensor, const PartFile& file, uint64_t hash) {
    const auto piece_at = [&](uint64_t offset) -> const Piece& {
        return *std::ranges::find_if(tensor.pieces, [&](const Piece& piece) {
            return offset >= piece.offset && offset < piece.offset + piece.bytes;
        });
    };
    const uint64_t found = hash_of_tensor(tensor, [&](uint64_t offset, std::span<std::byte> out) {
        file.read_at(offset, out);
        const Piece& piece = piece_at(offset);
        if (!has_finite_scales(piece, out))
            fail_internal("tensor {} was written with a scale that is not finite", piece.name);
    });
    if (found != hash)
        fail_file(Reason::io, "{}: tensor {} was read back with other bytes than were written", file.path(),
                  tensor.name);
}

}  // namespace

void verify(const PartialOutput& output, const Plan& plan, const checkpoint::MetaEntries& metadata,
            const ThreadPool& threads, const CancelToken* cancel, const Logger& log) {
    for (int64_t f = 0; f < std::ssize(plan.files); ++f)
        check_header(output.file(f), header_of(plan, metadata, f));
    std::vector<std::byte> block;
    std::vector<std::vector<float>> scratch(threads.n_threads());
    Hasher hasher;
    for (int64_t i = 0; i < std::ssize(plan.tensors); ++i) {
        const PlannedTensor& tensor = plan.tensors[i];
        const DoneTensor& done = output.done().at(i);
        const PartFile& file = output.file(tensor.file);
        if (tensor.work == Work::pieces) {
            throw_if_cancelled(cancel, "the verification of the output");
            verify_pieces(tensor, file, done.hash);
            continue;
        }
        const int64_t n_columns = tensor.shape.empty() ? 1 : tensor.shape.back();
        const int64_t bytes = row_bytes(tensor.type, n_columns);
        const int64_t n_rows = bytes == 0 ? 0 : static_cast<int64_t>(tensor.bytes) / bytes;
        const int64_t at_once = std::max<int64_t>(bytes == 0 ? 1 : k_verify_bytes / bytes, 1);
        int64_t not_finite = -1;
        hasher.reset();
        for (int64_t row = 0; row < n_rows; row += at_once) {
            throw_if_cancelled(cancel, "the verification of the output");
            const int64_t n = std::min(at_once, n_rows - row);
            block.resize(std::max<size_t>(block.size(), n * bytes));
            const std::span rows = std::span(block).first(n * bytes);
            file.read_at(tensor.offset + static_cast<uint64_t>(row * bytes), rows);
            hasher.add(rows);
            if (not_finite >= 0) continue;
            const int64_t found = first_not_finite(tensor, rows, n, bytes, n_columns, threads, scratch);
            if (found >= 0) not_finite = row + found;
        }
        if (hasher.value() != done.hash)
            fail_file(Reason::io, "{}: tensor {} was read back with other bytes than were written",
                      file.path(), shown(tensor.name));
        if (not_finite < 0) continue;
        if (tensor.work == Work::encode)
            fail_internal("tensor {} was encoded as {} with a number that is not finite in row {}",
                          shown(tensor.name), traits(tensor.type).name, not_finite);
        log.warning("tensor {} has a number that is not finite in row {}, as in the source",
                    shown(tensor.name), not_finite);
    }
}

}  // namespace minim::convert
