// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/format_text.h"
#include "base/hasher.h"
#include "check/files.h"
#include "format/format.h"
#include "weights/reader.h"

namespace minim::check {
namespace {

using checkpoint::Checkpoint;
using checkpoint::Tensor;
using weights::Use;
using weights::WeightSpec;

constexpr std::string_view k_hashes_key = "minim.tensor_xxh3";
constexpr uint64_t k_quick_bytes = uint64_t{16} << 20;  // 256 samples of 64 KiB
constexpr uint64_t k_piece_bytes = uint64_t{1} << 20;
constexpr int64_t k_piece_numbers = int64_t{1} << 18;
// Trained matrices of one role differ by less: by 4 among the layers and experts of the released models.
constexpr double k_largest_ratio = 16.0;

// Bytes that are read at once: rows of a weight, bytes of a tensor that has a hash, or both.
struct Piece {
    uint64_t bytes = 0;
    int64_t hashed = -1;  // the number of the tensor with a hash; -1: these bytes are not hashed
    uint64_t offset = 0;  // in that tensor
    int64_t weight = -1;  // the number of the weight; -1: these bytes are not decoded
    int64_t first_row = 0;
    int64_t n_rows = 0;
};

struct WeightFigures {
    double sum_of_squares = 0.0;
    std::string why_bad;  // where a number is none; "": nowhere
};

// ---- what is read

void add_rows(std::span<const WeightSpec> all, int64_t weight, int64_t hashed, std::vector<Piece>& pieces) {
    const WeightSpec& spec = all[weight];
    const int64_t n_piece = std::max<int64_t>(k_piece_numbers / spec.cols, 1);
    for (int64_t first = 0; first < spec.rows; first += n_piece) {
        const int64_t count = std::min(n_piece, spec.rows - first);
        const uint64_t offset = spec.source.offset + static_cast<uint64_t>(first * spec.row_bytes);
        pieces.push_back(
            {static_cast<uint64_t>(count * spec.row_bytes), hashed, offset, weight, first, count});
    }
}

void add_bytes(int64_t hashed, uint64_t begin, uint64_t end, std::vector<Piece>& pieces) {
    for (uint64_t at = begin; at < end; at += k_piece_bytes)
        pieces.push_back({std::min(k_piece_bytes, end - at), hashed, at});
}

// Returns whether reading the weight gives bytes of its tensor.
bool is_as_stored(const WeightSpec& weight) {
    const weights::WeightSource& source = weight.source;
    return weight.is_contiguous() && source.tensor->format == weight.format && source.added == 0.0F;
}

// Divides the weights and the tensors with hashes into pieces. Those of a tensor with a hash are in the order of its bytes.
std::vector<Piece> divided(std::span<const WeightSpec> all, std::span<const Tensor* const> hashed) {
    std::map<const Tensor*, std::vector<int64_t>> inside;  // weights by the tensor whose bytes they are
    for (const Tensor* tensor : hashed) inside[tensor];
    std::vector<Piece> pieces;
    for (int64_t i = 0; i < std::ssize(all); ++i) {
        const auto tensor = inside.find(all[i].source.tensor);
        if (tensor != inside.end() && is_as_stored(all[i])) {
            tensor->second.push_back(i);
        } else {
            add_rows(all, i, -1, pieces);
        }
    }
    for (int64_t h = 0; h < std::ssize(hashed); ++h) {
        std::vector<int64_t>& parts = inside[hashed[h]];
        std::ranges::stable_sort(parts, {}, [&](int64_t i) { return all[i].source.offset; });
        uint64_t at = 0;
        for (const int64_t i : parts) {
            const uint64_t begin = all[i].source.offset;
            if (begin < at) {  // one tensor is the embedding and the output
                add_rows(all, i, -1, pieces);
                continue;
            }
            add_bytes(h, at, begin, pieces);
            add_rows(all, i, h, pieces);
            at = begin + all[i].bytes();
        }
        add_bytes(h, at, hashed[h]->bytes, pieces);
    }
    return pieces;
}

// ---- hashes

// Returns the tensors whose hashes are compared: all, or the smallest ones, as many as the quick check reads.
std::vector<const Tensor*> chosen(std::span<const Tensor> tensors, bool is_quick) {
    std::vector<const Tensor*> all;
    for (const Tensor& tensor : tensors) all.push_back(&tensor);
    if (!is_quick) return all;
    std::ranges::stable_sort(all, {}, [](const Tensor* tensor) { return tensor->bytes; });
    uint64_t bytes = 0;
    const auto fits = [&](const Tensor* tensor) { return (bytes += tensor->bytes) <= k_quick_bytes; };
    const auto end = std::ranges::find_if_not(all, fits);
    all.erase(end, all.end());
    return all;
}

// Returns the tensors whose bytes are compared with the hashes of the file; reports hashes that do not fit the tensors.
std::vector<const Tensor*> hashed_tensors(const Opened& opened, bool is_quick, Report& report) {
    const checkpoint::MetaValue* stored = opened.checkpoint.metadata().find(k_hashes_key);
    if (stored == nullptr) return {};
    report.stages.emplace_back("hashes");
    const std::span tensors = opened.checkpoint.tensors();
    if (stored->is_array() && checkpoint::is_integer(stored->element_type) && stored->count == tensors.size())
        return chosen(tensors, is_quick);
    report.fault(FaultClass::hash, std::string(k_hashes_key),
                 format_text("has {} entries; the file has {} tensors", stored->count, tensors.size()));
    return {};
}

// The hashes of tensors whose bytes are added in order.
struct TensorHashes {
    Hasher hasher;
    std::vector<uint64_t> values;

    void add(const Piece& piece, std::span<const std::byte> bytes) {
        if (piece.hashed < 0) return;
        if (piece.offset == 0) hasher.reset();
        hasher.add(bytes);
        values[piece.hashed] = hasher.value();
    }
};

void compare_hashes(const Opened& opened, std::span<const Tensor* const> hashed,
                    std::span<const uint64_t> values, Report& report) {
    const checkpoint::MetaValue* stored = opened.checkpoint.metadata().find(k_hashes_key);
    for (size_t i = 0; i < hashed.size(); ++i) {
        const uint64_t wanted = stored->unsigned_at(static_cast<uint64_t>(hashed[i]->index));
        if (values[i] != wanted)
            report.fault(FaultClass::hash, hashed[i]->name,
                         format_text("has hash {:016x}; {:016x} was written", values[i], wanted));
    }
}

// ---- numbers

std::string expert_text(const WeightSpec& weight) {
    return weight.is_expert() ? format_text(" of expert {}", weight.expert) : std::string();
}

WeightFigures figures_of(const WeightSpec& weight, const Piece& rows, std::span<const std::byte> bytes,
                         std::vector<float>& scratch) {
    WeightFigures figures;
    scratch.resize(std::max(std::ssize(scratch), rows.n_rows * weight.cols));
    const std::span values = std::span(scratch).first(rows.n_rows * weight.cols);
    decode_rows(weight.format, bytes.data(), rows.n_rows, weight.row_bytes, weight.cols, values.data());
    for (const float value : values)
        figures.sum_of_squares += static_cast<double>(value) * static_cast<double>(value);
    if (std::isfinite(figures.sum_of_squares)) return figures;
    const auto bad = std::ranges::find_if(values, [](float value) { return !std::isfinite(value); });
    const int64_t at = bad - values.begin();
    figures.why_bad = format_text("{} in row {}, column {}{}", std::isnan(*bad) ? "NaN" : "infinity",
                                  rows.first_row + at / weight.cols, at % weight.cols, expert_text(weight));
    return figures;
}

double median(std::vector<double> values) {
    const auto middle = values.begin() + std::ssize(values) / 2;
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

// Compares the sizes of numbers of all matrices and experts of a role. `rms`: of each weight; negative: not known.
void compare_sizes(std::span<const WeightSpec> all, std::span<const double> rms, Report& report) {
    std::map<int32_t, std::vector<double>> of_role;
    for (size_t i = 0; i < all.size(); ++i)
        if (all[i].use != Use::vector && rms[i] > 0.0) of_role[all[i].role].push_back(rms[i]);
    std::map<int32_t, double> medians;
    for (const auto& [role, values] : of_role) medians[role] = median(values);
    for (size_t i = 0; i < all.size(); ++i) {
        if (all[i].use == Use::vector || rms[i] < 0.0) continue;
        const std::string& name = all[i].source.tensor->name;
        const std::string what = all[i].is_expert() ? format_text("expert {}", all[i].expert) : "the matrix";
        if (rms[i] == 0.0) {
            report.fault(FaultClass::range, name, format_text("{} is zero", what));
            continue;
        }
        const double usual = medians[all[i].role];
        const double ratio = rms[i] / usual;
        if (ratio > k_largest_ratio || ratio < 1.0 / k_largest_ratio)
            report.fault(FaultClass::range, name,
                         format_text("the root mean square of {} is {:.3g}; others of its role have {:.3g}",
                                     what, rms[i], usual));
    }
}

// Reports numbers that are none, and compares the sizes of the others.
void report_figures(std::span<const WeightSpec> all, std::span<WeightFigures> figures,
                    const weights::Reader& reader, Report& report) {
    std::vector<double> rms(all.size(), -1.0);
    const std::string* last_bad = nullptr;  // one fault for a tensor with several bad experts in a row
    for (size_t i = 0; i < all.size(); ++i) {
        std::string why = std::move(figures[i].why_bad);
        double factor = 1.0;
        try {
            factor = static_cast<double>(reader.factor(all[i]));
            if (why.empty() && !std::isfinite(factor)) why = format_text("a factor that is {}", factor);
        } catch (const Error& error) {
            if (error.status() != Status::format) throw;
            if (why.empty()) why = error.what();
        }
        const std::string& name = all[i].source.tensor->name;
        if (why.empty()) {
            const double mean = figures[i].sum_of_squares / static_cast<double>(all[i].rows * all[i].cols);
            rms[i] = std::abs(factor) * std::sqrt(mean);
        } else if (last_bad == nullptr || *last_bad != name) {
            report.fault(FaultClass::nan, name, format_text("has {}; weights are finite numbers", why));
            last_bad = &name;
        }
    }
    compare_sizes(all, rms, report);
}

// What is read, and what is found in it. A group of pieces is read and decoded on all threads, while one of them hashes the group before:
// hashing goes through a tensor in order, and is ten times as fast as decoding.
class TensorPass {
  public:
    TensorPass(const Opened& opened, std::span<const WeightSpec> all, std::span<const Tensor* const> hashed,
               const Reading& reading)
        : checkpoint_(opened.checkpoint),
          reader_(opened.checkpoint),
          all_(all),
          hashed_(hashed),
          reading_(reading),
          pieces_(divided(all, hashed)),
          figures_(all.size()),
          scratch_(reading.threads->n_threads()) {
        hashes_.values.resize(hashed.size(), Hasher().value());
    }

    void run() {
        uint64_t total = 0;
        for (const Piece& piece : pieces_) total += piece.bytes;
        const checkpoint::Progress none;
        checkpoint::LoadCounter counter(total, reading_.progress != nullptr ? *reading_.progress : none,
                                        reading_.cancel);
        const int64_t n_group = 4 * int64_t{reading_.threads->n_threads()};
        const std::span all_pieces(pieces_);
        std::span<const Piece> before;
        for (size_t first = 0; first < all_pieces.size() || !before.empty();) {
            const auto n = std::min<int64_t>(n_group, std::ssize(all_pieces) - static_cast<int64_t>(first));
            const std::span group = all_pieces.subspan(first, n);
            first += group.size();
            bytes_.resize(std::max(std::ssize(bytes_), n));
            weights::FirstError error;
            reading_.threads->run(n + 1, [&](int64_t i, int32_t thread) {
                error.run([&] {
                    if (i == 0) return hash(before);
                    read(group[i - 1], bytes_[i - 1], scratch_[thread]);
                });
            });
            error.rethrow();
            for (const Piece& piece : group) counter.add(piece.bytes);
            std::swap(bytes_, bytes_before_);
            before = group;
        }
    }

    std::span<WeightFigures> figures() { return figures_; }
    std::span<const uint64_t> hashes() const { return hashes_.values; }

  private:
    void hash(std::span<const Piece> pieces) {
        for (size_t i = 0; i < pieces.size(); ++i)
            hashes_.add(pieces[i], std::span(bytes_before_[i]).first(pieces[i].bytes));
    }

    void read(const Piece& piece, std::vector<std::byte>& buffer, std::vector<float>& scratch) {
        buffer.resize(std::max<uint64_t>(buffer.size(), piece.bytes));
        const std::span bytes = std::span(buffer).first(piece.bytes);
        if (piece.hashed >= 0) checkpoint_.read(*hashed_[piece.hashed], piece.offset, bytes);
        if (piece.weight < 0) return;
        const WeightSpec& weight = all_[piece.weight];
        WeightFigures part;
        try {
            if (piece.hashed < 0)
                reader_.read(weight, static_cast<uint64_t>(piece.first_row * weight.row_bytes), bytes);
            part = figures_of(weight, piece, bytes, scratch);
        } catch (const Error& error) {
            if (error.status() != Status::format || error.reason() == Reason::truncated) throw;
            part.why_bad = error.what();  // scales of assembled matrices are checked while they are read
        }
        const std::lock_guard lock(mutex_);
        WeightFigures& figures = figures_[piece.weight];
        figures.sum_of_squares += part.sum_of_squares;
        if (figures.why_bad.empty()) figures.why_bad = std::move(part.why_bad);
    }

    const Checkpoint& checkpoint_;
    const weights::Reader reader_;
    const std::span<const WeightSpec> all_;
    const std::span<const Tensor* const> hashed_;
    const Reading& reading_;
    const std::vector<Piece> pieces_;
    std::mutex mutex_;  // of `figures_`
    std::vector<WeightFigures> figures_;
    TensorHashes hashes_;
    std::vector<std::vector<std::byte>> bytes_;  // of the pieces of a group
    std::vector<std::vector<std::byte>> bytes_before_;
    std::vector<std::vector<float>> scratch_;  // of each thread
};

}  // namespace

void check_tensors(const Opened& opened, const Reading& reading, Report& report) {
    const std::vector<const Tensor*> hashed = hashed_tensors(opened, reading.is_quick, report);
    std::span<const WeightSpec> all;
    if (!reading.is_quick) {
        report.stages.emplace_back("weights");
        all = opened.weights;
    }
    TensorPass pass(opened, all, hashed, reading);
    pass.run();
    compare_hashes(opened, hashed, pass.hashes(), report);
    report_figures(all, pass.figures(), weights::Reader(opened.checkpoint), report);
}

}  // namespace minim::check
