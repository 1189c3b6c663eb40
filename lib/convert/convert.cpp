// SPDX-License-Identifier: Apache-2.0
#include "convert/convert.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/ranges.h>

#include "base/error.h"
#include "base/format_text.h"
#include "base/hasher.h"
#include "base/json.h"
#include "convert/earlier_output.h"
#include "convert/encode_slab.h"
#include "convert/experts.h"
#include "convert/importance.h"
#include "convert/partial_output.h"
#include "convert/plan.h"
#include "convert/source.h"
#include "convert/task_thread.h"
#include "convert/verify.h"
#include "format/encode/encode_rows.h"
#include "format/encode/folders.h"
#include "layouts/layout.h"

namespace minim::convert {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
}

// ---- the job

// Returns texts in one line.
std::string in_one_line(const std::vector<std::string>& texts) {
    std::string line;
    for (const std::string& text : texts) {
        if (!line.empty()) line += ' ';
        json::append_quoted(line, text);
    }
    return line;
}

std::string hex(uint64_t hash) {
    return format_text("{:016x}", hash);
}

uint64_t hash_of_source(const Source& source) {
    Hasher hasher;
    const auto add = [&](std::string_view text) {
        const uint64_t size = text.size();
        hasher.add(std::as_bytes(std::span(&size, 1)));
        hasher.add(std::as_bytes(std::span(text)));
    };
    for (const auto& entry : source.checkpoint.metadata().entries()) {
        add(entry.key);
        add(entry.value.bytes);
    }
    for (const checkpoint::Tensor& tensor : source.checkpoint.tensors()) {
        add(tensor.name);
        add(format_text("{} {} {} {}", tensor.type_name, tensor.part, tensor.offset,
                        fmt::join(tensor.shape, " ")));
    }
    return hasher.value();
}

Job job_of(const Options& options, const Plan& plan, const Source& source, const Importance* importance) {
    Job job;
    job.emplace_back("version", format_text("{}, encoders {}", options.program_version, k_encoder_version));
    std::vector<std::string> files;
    for (const File& file : source.checkpoint.files()) {
        const std::string_view path = file.path();
        files.push_back(
            format_text("{} {} {}", path.substr(path.rfind('/') + 1), file.size(), file.changed_ns()));
    }
    job.emplace_back("source", in_one_line(files));
    job.emplace_back("headers", hex(hash_of_source(source)));
    job.emplace_back("importance", importance == nullptr ? "none" : hex(importance->hash()));
    job.emplace_back("experts", source.kept_experts.empty()
                                    ? "all"
                                    : format_text("{} {}", source.kept_experts, hex(source.kept_hash)));
    job.emplace_back("effort", options.effort == EncodeEffort::fast ? "fast" : "full");
    // The output's headers have all types, places and metadata.
    Hasher hasher;
    for (int64_t f = 0; f < std::ssize(plan.files); ++f) {
        hasher.add(std::as_bytes(std::span(plan.files[f].name)));
        hasher.add(header_of(plan, plan.metadata, f).bytes);
    }
    for (const auto& [name, text] : plan.side_files) {
        hasher.add(std::as_bytes(std::span(name)));
        hasher.add(std::as_bytes(std::span(text)));
    }
    std::string recipe = options.types.recipe ? options.types.recipe->name : "none";
    if (plan.layout) recipe = name_of(*plan.layout);
    job.emplace_back("options", format_text("recipe {}, rules {}, result {}", recipe,
                                            in_one_line(options.types.rules), hex(hasher.value())));
    return job;
}

// Throws if a tensor cannot be encoded as planned.
void check_encoders(const Plan& plan) {
    for (const PlannedTensor& tensor : plan.tensors)
        if (tensor.work == Work::encode && !can_encode(tensor.type))
            fail(Status::unsupported, "tensor {} would be {}, for which there is no encoder",
                 shown(tensor.name), traits(tensor.type).name);
    if (plan.needs_importance.empty()) return;
    const std::string& name = plan.needs_importance.front();
    const auto tensor = std::ranges::find(plan.tensors, name, &PlannedTensor::name);
    fail(Status::invalid,
         "tensor {} would be {}, which needs importance data, and there is none for it ({} such tensors): "
         "--imatrix "
         "gives a file, --without-importance goes on all the same",
         shown(name), traits(tensor->type).name, plan.needs_importance.size());
}

// ---- the work

// Some rows of a tensor on their way from the source to the output.
struct Slab {
    int64_t tensor = 0;  // of the plan
    SlabRows rows;
    bool is_last = false;  // of its tensor
    std::vector<std::byte> in;
    std::vector<std::byte> out;
    uint64_t source_hash = 0;  // of the tensor up to here
    uint64_t read = 0;         // tasks that fill and write it
    uint64_t written = 0;
};

// The rows that are worked on together.
struct SlabPlace {
    int64_t tensor = 0;
    SlabRows rows;
    bool is_last = false;
};

std::vector<SlabPlace> slabs_of(const Plan& plan, const std::map<int64_t, DoneTensor>& done) {
    std::vector<SlabPlace> places;
    for (int64_t i = 0; i < std::ssize(plan.tensors); ++i) {
        if (done.contains(i)) continue;
        const PlannedTensor& tensor = plan.tensors[i];
        const SourceTensor& source = *tensor.source;
        const int64_t n_rows = tensor.work == Work::factors ? 0 : source.all_rows();
        const int64_t together =
            std::max(layouts::k_rows_together, plan.layout ? row_group(*plan.layout) : 1);
        const int64_t out_bytes = tensor.work == Work::factors ? 0 : tensor.bytes_of_rows(0, together);
        const int64_t bytes = std::max<int64_t>(together * source.row_bytes + out_bytes, 1);
        const int64_t at_once =
            std::max<int64_t>(static_cast<int64_t>(plan.slabs.bytes) / bytes, 1) * together;
        for (int64_t row = 0; row < n_rows; row += at_once) {
            const int64_t count = std::min(at_once, n_rows - row);
            places.push_back({i, {row, count}, row + count == n_rows});
        }
        if (n_rows == 0) places.push_back({i, {}, true});
    }
    return places;
}

// Reads rows of all matrices of a tensor, counted through.
void read_rows(const weights::Reader& reader, const SourceTensor& source, SlabRows rows, std::byte* out) {
    for (int64_t row = rows.first; row < rows.first + rows.count;) {
        const int64_t in_matrix = row % source.n_rows;
        const int64_t count = std::min(source.n_rows - in_matrix, rows.first + rows.count - row);
        reader.read(source.matrices[row / source.n_rows], static_cast<uint64_t>(in_matrix * source.row_bytes),
                    {out, static_cast<size_t>(count * source.row_bytes)});
        out += count * source.row_bytes;
        row += count;
    }
}

// A range of a file that is written from its start.
struct Written {
    Hasher hasher;
    uint64_t bytes = 0;

    void reset() {
        hasher.reset();
        bytes = 0;
    }
    void add(const PartFile& file, uint64_t offset, std::span<const std::byte> more) {
        file.write_at(offset + bytes, more);
        hasher.add(more);
        bytes += more.size();
    }
};

class Conversion {
  public:
    Conversion(const Options& options, const Source& source, const Importance* importance, const Plan& plan,
               const ThreadPool& threads, const CancelToken* cancel, const ProgressFunction& progress)
        : options_(options),
          importance_(importance),
          plan_(plan),
          threads_(threads),
          cancel_(cancel),
          progress_(progress),
          reader_(source.checkpoint),
          largest_(plan.tensors.size()) {}

    // Copies tensors of an earlier output that would be made again with the same bytes.
    void reuse(const EarlierOutput& earlier, PartialOutput& output) {
        TaskThread writes("minim-write");
        for (int64_t number = 0; number < std::ssize(plan_.tensors); ++number) {
            const EarlierTensor* tensor = earlier.find(plan_.tensors[number]);
            if (tensor == nullptr || output.done().contains(number)) continue;
            std::optional<DoneTensor> done =
                copy_earlier(earlier.checkpoint(), *tensor, number, output, writes);
            if (!done) continue;
            writes.run([&] { output.add_done(*done); });
            ++n_reused_;
        }
        writes.run([&] { output.record(); });
    }
    int64_t n_reused() const { return n_reused_; }

    // Makes all tensors that are not done. Afterwards all are.
    void run(PartialOutput& output) {
        state_.total_bytes = plan_.source_bytes;
        state_.n_tensors = std::ssize(plan_.tensors);
        for (const auto& [number, done] : output.done()) count_done(plan_.tensors[number]);
        if (!output.done().empty()) report({}, {});
        try {
            TaskThread reads("minim-read");
            TaskThread writes("minim-write");
            run_slabs(output, reads, writes);
            writes.run([&] { output.record(); });
        } catch (...) {
            // What is finished need not be made again.
            try {
                TaskThread writes("minim-write");
                writes.run([&] { output.record(); });
            } catch (const Error&) {  // NOLINT(bugprone-empty-catch): the first error is the one to report
            }
            throw;
        }
    }

    // Returns a finished tensor as JSON.
    std::string result(int64_t number, const DoneTensor& done) const {
        const PlannedTensor& tensor = plan_.tensors[number];
        std::string out = tensor_json(tensor);
        const uint64_t source_bytes = tensor.work == Work::factors ? tensor.bytes : tensor.source->bytes();
        out += format_text(
            ",\"number\":{},\"of\":{},\"source_bytes\":{},\"xxh3\":\"{}\",\"source_xxh3\":\"{}\"", number + 1,
            plan_.tensors.size(), source_bytes, hex(done.hash), hex(done.source_hash));
        const auto relative = [](double error, double square) {
            return square > 0 ? std::sqrt(error / square) : 0.0;
        };
        if (tensor.work == Work::encode || tensor.work == Work::pieces) {
            const ErrorSums& errors = done.errors;
            out += format_text(",\"rmse\":{},\"weighted\":{}", relative(errors.error, errors.square),
                               relative(errors.weighted_error, errors.weighted_square));
        }
        return out + format_text(",\"seconds\":{:.3f}}}", done.seconds);
    }

  private:
    void run_slabs(PartialOutput& output, TaskThread& reads, TaskThread& writes) {
        const std::vector<SlabPlace> places = slabs_of(plan_, output.done());
        const auto begin_read = [&](size_t k) {
            if (k >= places.size()) return;
            Slab& slab = ring_[k % k_slabs];
            writes.wait(slab.written);
            slab.tensor = places[k].tensor;
            slab.rows = places[k].rows;
            slab.is_last = places[k].is_last;
            slab.read = reads.submit([this, &slab] { read(slab); });
        };
        begin_read(0);
        for (size_t k = 0; k < places.size(); ++k) {
            throw_if_cancelled(cancel_, "the conversion");
            begin_read(k + 1);
            Slab& slab = ring_[k % k_slabs];
            const PlannedTensor& tensor = plan_.tensors[slab.tensor];
            if (slab.rows.first == 0) begin_tensor(slab.tensor);
            reads.wait(slab.read);
            if (tensor.work == Work::encode || tensor.work == Work::pieces)
                reserve(slab.out, tensor.bytes_of_rows(slab.rows.first, slab.rows.count));
            if (tensor.work == Work::encode) {
                add(encode_slab(task_, slab.rows, bytes_in(slab), bytes_out(slab), threads_));
            } else if (tensor.work == Work::pieces) {
                write_pieces(slab);
            } else if (tensor.work == Work::factors) {
                write_factors(slab);
            }
            const DoneTensor done = {slab.tensor,      tensor.offset, tensor.bytes,         0,
                                     slab.source_hash, errors_,       seconds_since(begin_)};
            slab.written = writes.submit([this, &slab, &output, done] { write(slab, output, done); });
            state_.done_bytes += static_cast<uint64_t>(slab.rows.count * tensor.source->row_bytes);
            if (!slab.is_last) {
                report(tensor.name, {});
                continue;
            }
            ++state_.n_done;
            if (progress_ != nullptr) {
                writes.wait(slab.written);
                report(tensor.name, result(slab.tensor, output.done().at(slab.tensor)));
            }
        }
        for (const Slab& slab : ring_) writes.wait(slab.written);
    }

    // Returns nothing if the bytes of the source, or those of the earlier output, have another hash than the earlier output states.
    std::optional<DoneTensor> copy_earlier(const checkpoint::Checkpoint& from, const EarlierTensor& earlier,
                                           int64_t number, PartialOutput& output, TaskThread& writes) {
        const PlannedTensor& tensor = plan_.tensors[number];
        const SourceTensor& source = *tensor.source;
        begin_tensor(number);
        Hasher hasher;
        Hasher source_hasher;
        const int64_t out_bytes = row_bytes(tensor.type, source.n_columns);
        const int64_t at_once =
            std::max<int64_t>(static_cast<int64_t>(plan_.slabs.bytes) / (source.row_bytes + out_bytes), 1);
        std::vector<std::byte> rows;
        std::vector<std::byte> encoded;
        for (int64_t row = 0; row < source.all_rows(); row += at_once) {
            throw_if_cancelled(cancel_, "the conversion");
            const SlabRows slab = {row, std::min(at_once, source.all_rows() - row)};
            rows.resize(slab.count * source.row_bytes);
            encoded.resize(slab.count * out_bytes);
            read_rows(reader_, source, slab, rows.data());
            from.read(*earlier.tensor, static_cast<uint64_t>(row * out_bytes), encoded);
            source_hasher.add(rows);
            hasher.add(encoded);
            add(compare_slab(task_, slab, rows, encoded, threads_));
            const uint64_t offset = tensor.offset + static_cast<uint64_t>(row * out_bytes);
            writes.run([&] { output.file(tensor.file).write_at(offset, encoded); });
        }
        if (source_hasher.value() != earlier.source_hash || hasher.value() != earlier.hash)
            return std::nullopt;
        return DoneTensor{number,  tensor.offset,        tensor.bytes, hasher.value(), source_hasher.value(),
                          errors_, seconds_since(begin_)};
    }

    // Calls the progress function. Throws cancelled.
    void report(std::string_view tensor, std::string_view tensor_result) {
        if (progress_ == nullptr) return;
        state_.tensor = tensor;
        state_.result = tensor_result;
        if (!progress_(state_)) fail(Status::cancelled, "cancelled during the conversion");
    }

    void count_done(const PlannedTensor& tensor) {
        ++state_.n_done;
        if (tensor.work != Work::factors) state_.done_bytes += tensor.source->bytes();
    }

    static void reserve(std::vector<std::byte>& bytes, int64_t size) {
        if (std::ssize(bytes) < size) bytes.resize(size);
    }
    std::span<const std::byte> bytes_in(const Slab& slab) const {
        return std::span(slab.in).first(slab.rows.count * plan_.tensors[slab.tensor].source->row_bytes);
    }
    std::span<std::byte> bytes_out(Slab& slab) const {
        const PlannedTensor& tensor = plan_.tensors[slab.tensor];
        if (tensor.work == Work::factors) return std::span(slab.out).first(tensor.bytes);
        return std::span(slab.out).first(tensor.bytes_of_rows(slab.rows.first, slab.rows.count));
    }

    // On the reading thread, which reads the slabs of a tensor in their order.
    void read(Slab& slab) {
        const PlannedTensor& tensor = plan_.tensors[slab.tensor];
        if (slab.rows.first == 0) source_hasher_.reset();
        if (slab.rows.count == 0) return;
        const SourceTensor& source = *tensor.source;
        reserve(slab.in, slab.rows.count * source.row_bytes);
        read_rows(reader_, source, slab.rows, slab.in.data());
        if (tensor.work == Work::copy || tensor.work == Work::factors)
            return;  // the output's hash is the source's
        source_hasher_.add(bytes_in(slab));
        if (slab.is_last) slab.source_hash = source_hasher_.value();
    }

    // On the writing thread, which writes the slabs of a tensor in their order.
    void write(Slab& slab, PartialOutput& output, DoneTensor done) {
        const PlannedTensor& tensor = plan_.tensors[slab.tensor];
        if (slab.rows.first == 0)
            for (Written& written : written_) written.reset();
        const PartFile& file = output.file(tensor.file);
        const std::span<const std::byte> bytes = tensor.work == Work::copy ? bytes_in(slab) : bytes_out(slab);
        if (tensor.work == Work::pieces) {
            size_t at = 0;
            for (size_t i = 0; i < tensor.pieces.size(); ++i) {
                const Piece& piece = tensor.pieces[i];
                const size_t count = piece.bytes_of(slab.rows.first, slab.rows.count);
                written_[i].add(file, piece.offset, bytes.subspan(at, count));
                at += count;
            }
        } else {
            written_[0].add(file, tensor.offset, bytes);
        }
        if (!slab.is_last) return;
        std::vector<uint64_t> hashes;
        for (size_t i = 0; i < std::max<size_t>(tensor.pieces.size(), 1); ++i)
            hashes.push_back(written_[i].hasher.value());
        done.hash = joined_hash(hashes);
        if (tensor.work == Work::copy || tensor.work == Work::factors) done.source_hash = done.hash;
        output.add_done(done);
    }

    void add(const ErrorSums& sums) {
        errors_.error += sums.error;
        errors_.square += sums.square;
        errors_.weighted_error += sums.weighted_error;
        errors_.weighted_square += sums.weighted_square;
    }

    void begin_tensor(int64_t number) {
        const PlannedTensor& tensor = plan_.tensors[number];
        begin_ = Clock::now();
        errors_ = {};
        if (tensor.work == Work::encode || tensor.work == Work::pieces) task_ = task_of(number);
    }

    EncodeTask task_of(int64_t number) {
        const PlannedTensor& tensor = plan_.tensors[number];
        EncodeTask task = plain_task(tensor);
        if (tensor.work == Work::pieces) {
            if (!has_matrix_factor(tensor.piece_layout)) return task;
            const bool keeps = keeps_codes(tensor.piece_layout, tensor.source->format);
            task.type_factors = keeps ? source_factors(*tensor.source) : nvfp4_factors(number);
        } else if (tensor.type == Format::nvfp4) {
            task.type_factors = nvfp4_factors(number);
        }
        return task;
    }

    EncodeTask plain_task(const PlannedTensor& tensor) const {
        EncodeTask task;
        task.source = tensor.source;
        task.type = tensor.type;
        task.effort = options_.effort;
        task.importance = importance_;
        task.chunk_rows = plan_.slabs.chunk_rows;
        if (tensor.source->has_factors) task.source_factors = source_factors(*tensor.source);
        return task;
    }

    // Encodes the rows of a matrix of a folder, and writes what it has once.
    void write_pieces(Slab& slab) {
        const PlannedTensor& tensor = plan_.tensors[slab.tensor];
        const std::span<std::byte> out = bytes_out(slab);
        add(encode_folder_slab(task_, tensor.piece_layout, tensor.pieces, slab.rows, bytes_in(slab), out,
                               threads_));
        if (slab.rows.first != 0) return;
        const float factor = task_.type_factors.empty() ? 1.0F : task_.type_factors.front();
        const float peak = importance_ == nullptr ? 0.0F : importance_->input_peak(*tensor.source, 0);
        const auto put_bytes = [&](const auto& value, size_t at) {
            std::ranges::copy(std::as_bytes(std::span(&value, 1)), out.begin() + static_cast<ptrdiff_t>(at));
        };
        size_t at = 0;
        for (const Piece& piece : tensor.pieces) {
            constexpr float k_largest_code = 6.0F * 448.0F;
            if (piece.content == PieceContent::factor) put_bytes(factor, at);
            if (piece.content == PieceContent::inverse_factor) put_bytes(1.0F / factor, at);
            if (piece.content == PieceContent::input_scale) put_bytes(peak / k_largest_code, at);
            if (piece.content == PieceContent::inverse_input_scale) put_bytes(k_largest_code / peak, at);
            if (piece.content == PieceContent::shape)
                put_bytes(std::array<int64_t, 2>{tensor.source->n_rows, tensor.source->n_columns}, at);
            at += piece.bytes_of(slab.rows.first, slab.rows.count);
        }
    }

    std::vector<float> source_factors(const SourceTensor& source) const {
        std::vector<float> factors;
        for (const weights::WeightSpec& spec : source.matrices) factors.push_back(reader_.factor(spec));
        return factors;
    }

    // The factors of a matrix: of the source if its bytes are copied.
    void write_factors(Slab& slab) {
        const PlannedTensor& tensor = plan_.tensors[slab.tensor];
        const int64_t of = slab.tensor - 1;
        const std::vector<float> factors =
            plan_.tensors[of].work == Work::copy ? source_factors(*tensor.source) : nvfp4_factors(of);
        reserve(slab.out, static_cast<int64_t>(tensor.bytes));
        std::ranges::copy(std::as_bytes(std::span(factors)), slab.out.begin());
    }

    // Returns the factors of matrices that become NVFP4: the largest scale of a block is then the largest E4M3 number. Gate and up of
    // an expert have the same factor, which engines that join them ask for.
    std::vector<float> nvfp4_factors(int64_t number) {
        std::vector<float> factors = largest(number);
        if (const auto other = other_of_pair(number)) {
            const std::vector<float>& more = largest(*other);
            for (size_t i = 0; i < factors.size(); ++i) factors[i] = std::max(factors[i], more[i]);
        }
        for (float& factor : factors) factor = nvfp4_factor(factor);
        return factors;
    }

    // Gate and up of an expert of a folder are near each other.
    std::optional<int64_t> other_of_folder_pair(int64_t number) const {
        constexpr int64_t k_near = 2;
        constexpr std::pair<std::string_view, std::string_view> k_pairs[] = {
            {"w1.weight", "w3.weight"}, {"gate_proj.weight", "up_proj.weight"}};
        std::string name = plan_.tensors[number].name;
        const auto replace_end = [&name](std::string_view from, std::string_view to) {
            if (!name.ends_with(from)) return false;
            name.replace(name.size() - from.size(), from.size(), to);
            return true;
        };
        const bool has_other = std::ranges::any_of(k_pairs, [&](const auto& pair) {
            return replace_end(pair.first, pair.second) || replace_end(pair.second, pair.first);
        });
        if (!has_other) return std::nullopt;
        const int64_t last = std::min(number + k_near, std::ssize(plan_.tensors) - 1);
        for (int64_t i = std::max<int64_t>(number - k_near, 0); i <= last; ++i)
            if (plan_.tensors[i].name == name && plan_.tensors[i].work == Work::pieces) return i;
        return std::nullopt;
    }

    std::optional<int64_t> other_of_pair(int64_t number) const {
        if (plan_.layout) return other_of_folder_pair(number);
        constexpr std::string_view k_gate = ".ffn_gate_exps.";
        constexpr std::string_view k_up = ".ffn_up_exps.";
        std::string name = plan_.tensors[number].name;
        const size_t gate = name.find(k_gate);
        const size_t up = name.find(k_up);
        if (gate != std::string::npos) {
            name.replace(gate, k_gate.size(), k_up);
        } else if (up != std::string::npos) {
            name.replace(up, k_up.size(), k_gate);
        } else {
            return std::nullopt;
        }
        const auto found = std::ranges::find(plan_.tensors, name, &PlannedTensor::name);
        const bool is_pair = found != plan_.tensors.end() && found->work == Work::encode &&
                             found->type == Format::nvfp4 &&
                             found->source->matrices.size() == plan_.tensors[number].source->matrices.size();
        return is_pair ? std::optional(found - plan_.tensors.begin()) : std::nullopt;
    }

    // Reads a tensor for the largest magnitude in each matrix.
    const std::vector<float>& largest(int64_t number) {
        std::vector<float>& magnitudes = largest_[number];
        if (!magnitudes.empty()) return magnitudes;
        const PlannedTensor& tensor = plan_.tensors[number];
        const SourceTensor& source = *tensor.source;
        magnitudes.resize(source.matrices.size());
        const EncodeTask task = plain_task(tensor);
        constexpr int64_t k_part = 8;  // of a slab: the slabs of the other tensors are in memory too
        const int64_t at_once =
            std::max<int64_t>(static_cast<int64_t>(plan_.slabs.bytes) / source.row_bytes / k_part, 1);
        std::vector<std::byte> bytes(std::min(at_once, source.all_rows()) * source.row_bytes);
        for (int64_t row = 0; row < source.all_rows(); row += at_once) {
            throw_if_cancelled(cancel_, "the conversion");
            const SlabRows rows = {row, std::min(at_once, source.all_rows() - row)};
            read_rows(reader_, source, rows, bytes.data());
            update_largest(task, rows, std::span(bytes).first(rows.count * source.row_bytes), magnitudes,
                           threads_);
        }
        return magnitudes;
    }

    const Options& options_;
    const Importance* importance_;
    const Plan& plan_;
    const ThreadPool& threads_;
    const CancelToken* cancel_;
    const ProgressFunction& progress_;
    const weights::Reader reader_;
    std::vector<std::vector<float>> largest_;  // of each tensor that was measured, of each of its matrices
    Progress state_;
    int64_t n_reused_ = 0;
    std::array<Slab, k_slabs> ring_;  // outlives the threads that read and write

    // Of the tensor that is encoded.
    EncodeTask task_;
    ErrorSums errors_;
    Clock::time_point begin_;

    Hasher source_hasher_;                       // of the reading thread
    std::array<Written, k_max_pieces> written_;  // of the writing thread: each piece of a tensor
};

// Returns the hash of each source tensor that an earlier conversion stated, by the tensor's name. None if it had other encoders than this
// one: the output states one kind.
std::map<std::string, uint64_t, std::less<>> stated_source_hashes(const Source& source, const Plan& plan) {
    std::map<std::string, uint64_t, std::less<>> hashes;
    const checkpoint::Metadata& metadata = source.checkpoint.metadata();
    const checkpoint::MetaValue* stated = metadata.find("minim.tensor_source_xxh3");
    const auto tensors = source.checkpoint.tensors();
    if (stated == nullptr || stated->element_type != checkpoint::MetaType::u64 ||
        stated->count != tensors.size())
        return hashes;
    const auto has_key = [](const auto& entry) { return entry.first == k_encoders_key; };
    const auto encoders = std::ranges::find_if(plan.metadata, has_key);
    const auto earlier = metadata.string(k_encoders_key);
    if (encoders != plan.metadata.end() && earlier && *earlier != encoders->second.string_at(0))
        return hashes;
    for (size_t i = 0; i < tensors.size(); ++i) hashes.emplace(tensors[i].name, stated->unsigned_at(i));
    return hashes;
}

// Fills in the hashes of the tensors.
checkpoint::MetaEntries with_hashes(const Plan& plan, const Source& source,
                                    const std::map<int64_t, DoneTensor>& done) {
    checkpoint::MetaEntries metadata = plan.metadata;
    if (!plan.has_hashes) return metadata;
    const auto stated = stated_source_hashes(source, plan);
    std::vector<uint64_t> hashes;
    std::vector<uint64_t> source_hashes;
    for (const auto& [number, tensor] : done) {
        const PlannedTensor& planned = plan.tensors[number];
        const bool is_whole = planned.work == Work::copy && planned.source->experts.empty();
        const auto found = is_whole ? stated.find(planned.name) : stated.end();
        hashes.push_back(tensor.hash);
        source_hashes.push_back(found != stated.end() ? found->second : tensor.source_hash);
    }
    put(metadata, "minim.tensor_xxh3", checkpoint::meta_array(std::span<const uint64_t>(hashes)));
    put(metadata, "minim.tensor_source_xxh3",
        checkpoint::meta_array(std::span<const uint64_t>(source_hashes)));
    return metadata;
}

// What a conversion works on. The plan refers to the source.
struct Prepared {
    std::unique_ptr<const Importance> importance;  // null: none
    Source source;
    Plan plan;
};

Prepared prepare(const Options& options, const ThreadPool& threads, const Logger& log) {
    std::unique_ptr<const Importance> importance;
    if (!options.imatrix.empty())
        importance = std::make_unique<const Importance>(options.imatrix, options.include_weights,
                                                        options.exclude_weights);
    Prepared prepared{
        std::move(importance), open_source(options.source, log, options.layout.has_value()), {}};
    if (!options.keep_experts.empty())
        cut_experts(choose_experts(options.keep_experts, prepared.source, prepared.importance.get()),
                    prepared.source);
    prepared.plan = make_plan(options, prepared.source, prepared.importance.get(), threads.n_threads(), log);
    return prepared;
}

}  // namespace

std::string plan_conversion(const Options& options, const ThreadPool& threads, const Logger& log) {
    const Prepared prepared = prepare(options, threads, log);
    if (!options.reuse.empty())  // refuses what is no earlier output
        EarlierOutput(options.reuse, encoders_text(options, prepared.importance.get()), log);
    return to_json(prepared.plan);
}

std::string convert_model(const Options& options, const ThreadPool& threads, const CancelToken* cancel,
                          const ProgressFunction& progress, const Logger& log) {
    const auto begin = Clock::now();
    const Prepared prepared = prepare(options, threads, log);
    const std::unique_ptr<const Importance>& importance = prepared.importance;
    const Source& source = prepared.source;
    const Plan& plan = prepared.plan;
    check_encoders(plan);
    std::optional<EarlierOutput> earlier;
    if (!options.reuse.empty()) earlier.emplace(options.reuse, encoders_text(options, importance.get()), log);
    // On a thread of the library a write beyond RLIMIT_FSIZE is an error; on the caller's it would end the process.
    std::unique_ptr<PartialOutput> output;
    const auto on_own_thread = [](std::function<void()> task) {
        TaskThread("minim-write").run(std::move(task));
    };
    on_own_thread([&] {
        output = std::make_unique<PartialOutput>(options, plan, source,
                                                 job_of(options, plan, source, importance.get()), log);
    });
    const auto n_resumed = std::ssize(output->done());
    Conversion conversion(options, source, importance.get(), plan, threads, cancel, progress);
    try {
        if (earlier) conversion.reuse(*earlier, *output);
        conversion.run(*output);
        const checkpoint::MetaEntries metadata = with_hashes(plan, source, output->done());
        on_own_thread([&] {
            output->write_side_files();
            output->write_headers(metadata);
        });
        if (options.verifies) verify(*output, plan, metadata, threads, cancel, log);
    } catch (const Error& error) {
        if (error.status() != Status::cancelled) throw;
        throw Error(Status::cancelled, Reason::none,
                    format_text("{}; {} of {} tensors are done in {}: the same command goes on", error.what(),
                                output->done().size(), plan.tensors.size(), plan.partial_folder()));
    }
    on_own_thread([&] { output->publish(); });
    std::vector<std::string> tensors;
    for (const auto& [number, done] : output->done()) tensors.push_back(conversion.result(number, done));
    return to_json(plan, tensors,
                   format_text(",\"resumed\":{},\"reused\":{},\"seconds\":{:.3f}", n_resumed,
                               conversion.n_reused(), seconds_since(begin)));
}

}  // namespace minim::convert
