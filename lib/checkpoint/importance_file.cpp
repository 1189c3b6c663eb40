// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/importance_file.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <span>
#include <utility>

#include "base/checked.h"
#include "base/error.h"
#include "base/file.h"
#include "base/new_file.h"
#include "checkpoint/byte_writer.h"
#include "checkpoint/foreign_file.h"
#include "checkpoint/gguf_header.h"
#include "checkpoint/gguf_writer.h"
#include "checkpoint/name_order.h"
#include "checkpoint/printable.h"

namespace minim::checkpoint {
namespace {

constexpr std::string_view k_sums_suffix = ".in_sum2";
constexpr std::string_view k_counts_suffix = ".counts";
constexpr std::string_view k_peaks_suffix = ".in_max";
constexpr std::string_view k_norms_suffix = ".out_norm";
constexpr std::string_view k_text_key = "minim.imatrix.text_xxh3";
constexpr std::string_view k_model_key = "minim.imatrix.model_xxh3";
constexpr int32_t k_max_dat_name = 4096;
constexpr int32_t k_max_dat_dataset = 1 << 16;
constexpr uint64_t k_smallest_dat_entry_bytes = 17;  // length, one byte of a name, calls, values, one value

void check_values(std::span<const float> values, std::string_view what, std::string_view file,
                  std::string_view entry, uint64_t at) {
    for (size_t i = 0; i < values.size(); ++i) {
        if (std::isfinite(values[i]) && values[i] >= 0.0F) continue;
        fail_at(file, Reason::value, at + i * sizeof(float),
                "importance entry {}: {} {} is {}, it must be finite and not negative", printable(entry),
                what, i, values[i]);
    }
}

void sort_entries(ImportanceData& data) {
    std::sort(data.entries.begin(), data.entries.end(),
              [](const ImportanceEntry& a, const ImportanceEntry& b) { return a.name < b.name; });
}

// ---- GGUF ----

// The tensors of a GGUF file by name.
class NamedTensors {
  public:
    NamedTensors(const ByteSource& source, const std::vector<Tensor>& tensors)
        : source_(source), tensors_(tensors), order_(order_by_name(tensors, &Tensor::name)) {}

    // Returns the values of the tensor of `entry` with the suffix; nothing if there is none. Throws if it is not F32, or has a
    // value that is negative or not finite.
    std::optional<std::vector<float>> find(const std::string& entry, std::string_view suffix,
                                           std::string_view what) const {
        const auto found = find_by_name(tensors_, order_, &Tensor::name, entry + std::string(suffix));
        if (!found) return std::nullopt;
        return read(tensors_[*found], entry, what);
    }

    std::vector<float> read(const Tensor& tensor, const std::string& entry, std::string_view what) const {
        if (tensor.format != Format::f32) {
            fail_at(source_.name(), Reason::type, tensor.offset,
                    "importance entry {}: {} are {}, they must be F32", printable(entry), what,
                    tensor.type_name);
        }
        std::vector<float> values(tensor.bytes / sizeof(float));
        source_.read_at(tensor.offset, std::as_writable_bytes(std::span(values)));
        check_values(values, what, source_.name(), entry, tensor.offset);
        return values;
    }

  private:
    const ByteSource& source_;
    const std::vector<Tensor>& tensors_;
    const std::vector<uint32_t> order_;
};

ImportanceEntry read_gguf_entry(const NamedTensors& tensors, const Tensor& sums, std::string_view file) {
    ImportanceEntry entry;
    entry.name = sums.name.substr(0, sums.name.size() - k_sums_suffix.size());
    entry.sums = tensors.read(sums, entry.name, "sums");
    auto counts = tensors.find(entry.name, k_counts_suffix, "counts");
    if (!counts) {
        fail_at(file, Reason::value, sums.offset, "importance entry {} has no tensor {}",
                printable(entry.name), printable(entry.name + std::string(k_counts_suffix)));
    }
    entry.counts = *std::move(counts);
    entry.columns = sums.shape.empty() ? 0 : sums.shape.back();
    entry.matrices = std::ssize(entry.counts);
    int64_t n_values = 0;
    if (entry.columns == 0 || entry.matrices == 0 || !checked_mul(entry.columns, entry.matrices, n_values) ||
        n_values != std::ssize(entry.sums)) {
        fail_at(file, Reason::shape, sums.offset, "importance entry {}: {} sums do not fit to {} counts",
                printable(entry.name), shape_text(sums.shape), entry.matrices);
    }
    const auto read_optional = [&](std::string_view suffix, std::string_view what) {
        const auto values = tensors.find(entry.name, suffix, what);
        if (values && values->size() != entry.counts.size()) {
            fail_at(file, Reason::shape, sums.offset, "importance entry {}: {} {} for {} matrices",
                    printable(entry.name), values->size(), what, entry.matrices);
        }
        return values.value_or(std::vector<float>());
    };
    entry.in_max = read_optional(k_peaks_suffix, "magnitudes");
    entry.out_norm = read_optional(k_norms_suffix, "norms");
    return entry;
}

// Returns the integer of a key; 0 if it is missing.
int64_t number_of(const Metadata& metadata, std::string_view key, std::string_view file) {
    const uint64_t value = metadata.unsigned_integer(key).value_or(0);
    if (value > static_cast<uint64_t>(std::numeric_limits<int32_t>::max()))
        fail_at(file, Reason::value, metadata.find_entry(key)->position, "{} is {}", key, value);
    return static_cast<int64_t>(value);
}

ImportanceData parse_gguf(const ByteSource& source) {
    const GgufHeader header = read_gguf_header(source);
    const Metadata& metadata = header.metadata;
    const std::string type(metadata.string("general.type").value_or(""));
    if (type != "imatrix") {
        fail_at(source.name(), Reason::value, 0,
                "this GGUF file has no importance data: general.type is {}, it must be \"imatrix\"",
                printable(type));
    }
    ImportanceData data;
    if (const auto datasets = metadata.strings("imatrix.datasets")) {
        for (size_t i = 0; i < datasets->size(); ++i) data.datasets.emplace_back((*datasets)[i]);
    }
    data.chunks = number_of(metadata, "imatrix.chunk_count", source.name());
    data.chunk_size = number_of(metadata, "imatrix.chunk_size", source.name());
    data.text_hash = metadata.unsigned_integer(k_text_key).value_or(0);
    data.model_hash = metadata.unsigned_integer(k_model_key).value_or(0);
    const NamedTensors tensors(source, header.tensors);
    for (const Tensor& tensor : header.tensors) {
        if (tensor.name.ends_with(k_sums_suffix) && tensor.name.size() > k_sums_suffix.size())
            data.entries.push_back(read_gguf_entry(tensors, tensor, source.name()));
    }
    if (data.entries.empty())
        fail_at(source.name(), Reason::value, 0, "this file of importance data has no entries");
    sort_entries(data);
    return data;
}

std::vector<std::byte> gguf_bytes(const ImportanceData& data) {
    std::vector<NewTensor> tensors;
    std::vector<std::span<const std::byte>> values;  // of each
    const auto add = [&](const ImportanceEntry& entry, std::string_view suffix, int64_t columns,
                         const std::vector<float>& of) {
        if (of.empty()) return;
        tensors.push_back({.name = entry.name + std::string(suffix),
                           .shape = {entry.matrices, columns},
                           .type = traits(Format::f32).gguf_type,
                           .bytes = of.size() * sizeof(float)});
        values.push_back(std::as_bytes(std::span(of)));
    };
    for (const ImportanceEntry& entry : data.entries) {
        if (!entry.has_counts()) {
            fail(Status::invalid,
                 "importance entry {} has no counts, which a GGUF file needs: say the chunk size of the "
                 "older file",
                 printable(entry.name));
        }
        add(entry, k_sums_suffix, entry.columns, entry.sums);
        add(entry, k_counts_suffix, 1, entry.counts);
        add(entry, k_peaks_suffix, 1, entry.in_max);
        add(entry, k_norms_suffix, 1, entry.out_norm);
    }
    MetaEntries metadata = {{"general.type", meta_text("imatrix")},
                            {"imatrix.datasets", meta_texts(data.datasets)},
                            {"imatrix.chunk_count", meta_value(static_cast<uint32_t>(data.chunks))},
                            {"imatrix.chunk_size", meta_value(static_cast<uint32_t>(data.chunk_size))}};
    if (data.text_hash != 0) metadata.emplace_back(k_text_key, meta_value(data.text_hash));
    if (data.model_hash != 0) metadata.emplace_back(k_model_key, meta_value(data.model_hash));
    NewHeader header = make_gguf_header(metadata, tensors);
    std::vector<std::byte> bytes = std::move(header.bytes);
    bytes.resize(header.file_bytes);
    for (size_t i = 0; i < values.size(); ++i)
        std::memcpy(bytes.data() + header.offsets[i], values[i].data(), values[i].size());
    return bytes;
}

// ---- the older form ----

// Reads an i32 between `least` and `most`.
int32_t read_number(HeaderReader& in, std::string_view what, int32_t least, int64_t most) {
    const uint64_t at = in.position();
    const auto value = in.number<int32_t>(what);
    if (value < least || value > most)
        fail_at(in.file(), Reason::limit, at, "{} is {}, it must be from {} to {}", what, value, least, most);
    return value;
}

std::string read_dat_text(HeaderReader& in, std::string_view what, int32_t least, int32_t most) {
    std::string text(read_number(in, what, least, most), '\0');
    if (!text.empty()) in.read(std::as_writable_bytes(std::span(text)), what);
    return text;
}

ImportanceEntry read_dat_entry(HeaderReader& in) {
    ImportanceEntry entry;
    const uint64_t name_at = in.position();
    entry.name = read_dat_text(in, "the length of an entry's name", 1, k_max_dat_name);
    if (entry.name.find('\0') != std::string::npos)
        fail_at(in.file(), Reason::value, name_at, "the entry name {} holds a NUL byte",
                printable(entry.name));
    constexpr int64_t k_max_calls = std::numeric_limits<int32_t>::max();
    entry.calls = read_number(in, "the number of calls of an entry", 0, k_max_calls);
    const auto room = static_cast<int64_t>(in.left() / sizeof(float));
    entry.columns = read_number(in, "the number of values of an entry", 1, room);
    entry.sums.resize(entry.columns);
    const uint64_t at = in.position();
    in.read(std::as_writable_bytes(std::span(entry.sums)), "the values of an entry");
    check_values(entry.sums, "value", in.file(), entry.name, at);
    return entry;
}

ImportanceData parse_dat(const ByteSource& source) {
    HeaderReader in(source);
    ImportanceData data;
    data.form = ImportanceForm::dat;
    const std::string foreign = describe_foreign(source);
    if (!foreign.empty())
        fail_at(source.name(), Reason::format, 0, "not a file of importance data: {}", foreign);
    const auto most = static_cast<int64_t>(source.size() / k_smallest_dat_entry_bytes);
    const int32_t n_entries = read_number(in, "the number of importance entries", 1, most);
    std::vector<uint64_t> positions;
    for (int32_t i = 0; i < n_entries; ++i) {
        positions.push_back(in.position());
        data.entries.push_back(read_dat_entry(in));
    }
    const auto repeated = find_repeated(data.entries, order_by_name(data.entries, &ImportanceEntry::name),
                                        &ImportanceEntry::name);
    if (repeated) {
        fail_at(source.name(), Reason::duplicate, positions[*repeated], "importance entry {} appears twice",
                printable(data.entries[*repeated].name));
    }
    if (in.left() > 0) {
        constexpr int64_t k_max_chunks = std::numeric_limits<int32_t>::max();
        data.chunks = read_number(in, "the number of chunks", 0, k_max_chunks);
        data.datasets.push_back(read_dat_text(in, "the length of the dataset's name", 0, k_max_dat_dataset));
    }
    sort_entries(data);
    return data;
}

void require_finite(std::span<const float> values, std::string_view name) {
    if (!std::ranges::all_of(values, [](float value) { return std::isfinite(value); }))
        fail(Status::invalid, "importance entry {}: a sum is too large for a float", printable(name));
}

// Returns the number of chunks of an entry's rows.
int64_t calls_of(const ImportanceEntry& entry, int64_t chunk_size) {
    const auto rows = static_cast<double>(*std::ranges::max_element(entry.counts));
    const double calls = std::ceil(rows / static_cast<double>(chunk_size));
    constexpr double k_max_calls = std::numeric_limits<int32_t>::max();
    if (calls > k_max_calls)
        fail(Status::invalid, "importance entry {} has {} rows, too many for a .dat file",
             printable(entry.name), rows);
    return static_cast<int64_t>(calls);
}

// Returns the values of an entry in the older form. Matrices without rows get the mean square 1.
std::vector<float> dat_values(const ImportanceEntry& entry, int64_t calls) {
    std::vector<float> values(entry.sums.size());
    const auto factor = static_cast<float>(calls);
    for (int64_t m = 0; m < entry.matrices; ++m) {
        const float count = entry.counts[m];
        for (int64_t i = m * entry.columns; i < (m + 1) * entry.columns; ++i)
            values[i] = count > 0.0F ? entry.sums[i] / count * factor : factor;
    }
    require_finite(values, entry.name);
    return values;
}

std::vector<std::byte> dat_bytes(const ImportanceData& data) {
    const auto as_i32 = [](int64_t value, std::string_view what) {
        if (value > std::numeric_limits<int32_t>::max())
            fail(Status::invalid, "{} is {}, too large for a .dat file", what, value);
        return static_cast<int32_t>(value);
    };
    ByteWriter out;
    out.number(as_i32(std::ssize(data.entries), "the number of importance entries"));
    for (const ImportanceEntry& entry : data.entries) {
        int64_t calls = entry.calls;
        std::vector<float> values = entry.sums;
        if (entry.has_counts()) {
            if (data.chunk_size <= 0) {
                fail(Status::invalid, "importance entry {} needs the chunk size in a .dat file",
                     printable(entry.name));
            }
            calls = calls_of(entry, data.chunk_size);
            values = dat_values(entry, calls);
        }
        out.number(as_i32(std::ssize(entry.name), "the length of a name"));
        out.raw(std::as_bytes(std::span(entry.name)));
        out.number(as_i32(calls, "the number of calls"));
        out.number(as_i32(std::ssize(values), "the number of values"));
        out.raw(std::as_bytes(std::span(values)));
    }
    std::string_view dataset = data.datasets.empty() ? std::string_view() : data.datasets.front();
    dataset = dataset.substr(0, k_max_dat_dataset);
    out.number(as_i32(data.chunks, "the number of chunks"));
    out.number(as_i32(std::ssize(dataset), "the length of the dataset's name"));
    out.raw(std::as_bytes(std::span(dataset)));
    return std::move(out.bytes);
}

// ---- merging ----

// Returns an entry with one value a matrix as `shape` has them: an older entry does not say how many matrices it has.
ImportanceEntry in_shape_of(const ImportanceEntry& entry, const ImportanceEntry& shape) {
    if (entry.columns == shape.columns && entry.matrices == shape.matrices) return entry;
    if (entry.matrices != 1 || entry.columns != shape.columns * shape.matrices) {
        fail(Status::invalid, "importance entry {} has {} x {} values in one file and {} x {} in another",
             printable(entry.name), shape.matrices, shape.columns, entry.matrices, entry.columns);
    }
    ImportanceEntry same = entry;
    same.columns = shape.columns;
    same.matrices = shape.matrices;
    same.counts.assign(shape.matrices, entry.counts.front());
    same.in_max.clear();
    same.out_norm.clear();
    return same;
}

// Keeps the values of both, combined; none if one of them has none.
template <typename Combine>
void combine_values(std::vector<float>& values, const std::vector<float>& more, const Combine& combine) {
    if (values.size() != more.size()) values.clear();
    for (size_t i = 0; i < values.size(); ++i) values[i] = combine(values[i], more[i]);
}

ImportanceEntry sum_of(const ImportanceEntry& a, const ImportanceEntry& b) {
    const ImportanceEntry& shape = a.matrices >= b.matrices ? a : b;
    ImportanceEntry sum = in_shape_of(a, shape);
    const ImportanceEntry more = in_shape_of(b, shape);
    const auto add = [](float x, float y) { return x + y; };
    combine_values(sum.sums, more.sums, add);
    combine_values(sum.counts, more.counts, add);
    combine_values(sum.in_max, more.in_max, [](float x, float y) { return std::max(x, y); });
    combine_values(sum.out_norm, more.out_norm, add);
    for (const auto* values : {&sum.sums, &sum.counts, &sum.out_norm}) require_finite(*values, sum.name);
    return sum;
}

void require_counts(const ImportanceData& data) {
    for (const ImportanceEntry& entry : data.entries) {
        if (!entry.has_counts())
            fail(Status::invalid, "importance entry {} has no counts: say the chunk size of the older file",
                 printable(entry.name));
    }
}

}  // namespace

const ImportanceEntry* ImportanceData::find(std::string_view name) const {
    const auto found = std::ranges::lower_bound(entries, name, {}, &ImportanceEntry::name);
    return found != entries.end() && found->name == name ? &*found : nullptr;
}

ImportanceForm importance_form_of(std::string_view path) {
    return path.ends_with(".dat") ? ImportanceForm::dat : ImportanceForm::gguf;
}

ImportanceData parse_importance(const ByteSource& source) {
    std::array<char, 4> magic{};
    if (source.size() >= magic.size()) source.read_at(0, std::as_writable_bytes(std::span(magic)));
    return std::string_view(magic.data(), magic.size()) == "GGUF" ? parse_gguf(source) : parse_dat(source);
}

ImportanceData read_importance(const std::string& path) {
    const File file(path);
    return parse_importance(ByteSource(file));
}

std::vector<std::byte> importance_bytes(const ImportanceData& data, ImportanceForm form) {
    return form == ImportanceForm::dat ? dat_bytes(data) : gguf_bytes(data);
}

void write_importance(const std::string& path, const ImportanceData& data, ImportanceForm form) {
    const std::vector<std::byte> bytes = importance_bytes(data, form);
    NewFile file(path, bytes.size());
    file.write(bytes);
    file.commit();
}

void give_counts(ImportanceData& data, int64_t chunk_size) {
    for (ImportanceEntry& entry : data.entries) {
        if (entry.has_counts()) continue;
        if (chunk_size <= 0)
            fail(Status::invalid, "importance entry {} has no counts: say the chunk size of the older file",
                 printable(entry.name));
        // A value is the mean square times the calls, so that the sum over calls * chunk_size rows is value * chunk_size. An entry
        // without a call has no rows.
        const auto rows = entry.calls > 0 ? static_cast<float>(chunk_size) : 0.0F;
        for (float& value : entry.sums) value *= rows;
        require_finite(entry.sums, entry.name);
        entry.counts = {static_cast<float>(entry.calls) * rows};
        entry.calls = 0;
    }
    if (data.chunk_size == 0) data.chunk_size = chunk_size;
}

void merge_importance(ImportanceData& data, const ImportanceData& more) {
    require_counts(data);
    require_counts(more);
    ImportanceData sum;
    sum.form = data.form;
    sum.chunk_size = data.chunk_size != 0 ? data.chunk_size : more.chunk_size;
    sum.chunks = data.chunks + more.chunks;
    sum.datasets = data.datasets;
    for (const std::string& dataset : more.datasets) {
        if (std::ranges::find(sum.datasets, dataset) == sum.datasets.end()) sum.datasets.push_back(dataset);
    }
    for (const ImportanceEntry& entry : data.entries) {
        const ImportanceEntry* other = more.find(entry.name);
        sum.entries.push_back(other == nullptr ? entry : sum_of(entry, *other));
    }
    for (const ImportanceEntry& entry : more.entries) {
        if (data.find(entry.name) == nullptr) sum.entries.push_back(entry);
    }
    sort_entries(sum);
    if (data.text_hash == more.text_hash) sum.text_hash = data.text_hash;
    if (data.model_hash == more.model_hash) sum.model_hash = data.model_hash;
    data = std::move(sum);
}

void check_importance_size(const ImportanceEntry& entry, int64_t columns, int64_t matrices) {
    const int64_t n_values = std::ssize(entry.sums);
    if (n_values == columns || n_values == columns * matrices) return;
    fail(Status::invalid, "importance entry {} has {} values, the weight needs {} or {} x {}",
         printable(entry.name), n_values, columns, matrices, columns);
}

}  // namespace minim::checkpoint
