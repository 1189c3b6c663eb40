// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/safetensors_header.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/checked.h"
#include "base/format_text.h"
#include "checkpoint/foreign_file.h"
#include "checkpoint/json_reader.h"
#include "checkpoint/name_order.h"
#include "checkpoint/printable.h"

namespace minim::checkpoint {
namespace {

constexpr uint64_t k_length_bytes = 8;
constexpr size_t k_max_shape_numbers = 64;

struct DataType {
    std::string_view name;
    uint64_t bits;
    std::optional<Format> format;
};

constexpr std::array k_data_types = {
    DataType{"BOOL", 8, {}},          DataType{"U8", 8, {}},
    DataType{"I8", 8, Format::i8},    DataType{"F8_E4M3", 8, {}},
    DataType{"F8_E5M2", 8, {}},       DataType{"F8_E8M0", 8, {}},
    DataType{"F8_E4M3FNUZ", 8, {}},   DataType{"F8_E5M2FNUZ", 8, {}},
    DataType{"F16", 16, Format::f16}, DataType{"BF16", 16, Format::bf16},
    DataType{"I16", 16, Format::i16}, DataType{"U16", 16, {}},
    DataType{"F32", 32, Format::f32}, DataType{"I32", 32, Format::i32},
    DataType{"U32", 32, {}},          DataType{"F64", 64, Format::f64},
    DataType{"I64", 64, Format::i64}, DataType{"U64", 64, {}},
    DataType{"C64", 64, {}},          DataType{"F4", 4, {}},
    DataType{"F6_E2M3", 6, {}},       DataType{"F6_E3M2", 6, {}},
};

// A member of the header as it was read, before its fields are compared with each other.
struct Record {
    const DataType* type = nullptr;
    bool has_shape = false;
    bool has_range = false;
    uint64_t begin = 0;
    uint64_t end = 0;
    uint64_t position = 0;  // of the member in the file
};

// Returns whether the file begins with a possible header length and a brace. The length alone is not enough: other
// files may begin with a plausible one, too.
bool begins_like_a_header(const ByteSource& source) {
    if (source.size() <= k_length_bytes) return false;
    uint64_t length = 0;
    char first = '\0';
    source.read_at(0, std::as_writable_bytes(std::span(&length, 1)));
    source.read_at(k_length_bytes, std::as_writable_bytes(std::span(&first, 1)));
    return length > 0 && length <= std::min(k_json_cap_bytes, source.size() - k_length_bytes) && first == '{';
}

std::string read_json(const ByteSource& source) {
    if (!begins_like_a_header(source)) {
        if (const std::string what = describe_foreign(source); !what.empty())
            fail_at(source.name(), Reason::format, 0, "not a safetensors file: {}", what);
    }
    if (source.size() < k_length_bytes) {
        fail_at(source.name(), Reason::truncated, 0, "{} bytes are too few for a safetensors file",
                source.size());
    }
    uint64_t length = 0;
    source.read_at(0, std::as_writable_bytes(std::span(&length, 1)));
    if (length == 0) fail_at(source.name(), Reason::format, 0, "the header is empty");
    if (length > k_json_cap_bytes) {
        fail_at(source.name(), Reason::limit, 0, "the header has a length of {} bytes, the limit is {}",
                length, k_json_cap_bytes);
    }
    if (length > source.size() - k_length_bytes) {
        fail_at(source.name(), Reason::truncated, 0,
                "the file ends inside the header: {} bytes needed, {} left", length,
                source.size() - k_length_bytes);
    }
    std::string json(length, '\0');
    source.read_at(k_length_bytes, std::as_writable_bytes(std::span(json)));
    if (json[0] != '{')
        fail_at(source.name(), Reason::format, k_length_bytes, "the header does not begin with '{{'");
    return json;
}

Metadata read_metadata(JsonReader& json, std::string_view file) {
    std::vector<Metadata::Entry> entries;
    json.begin_object("__metadata__");
    std::string key;
    while (json.next_member(key)) {
        Metadata::Entry entry;
        entry.position = json.position();
        entry.key = key;
        entry.value.type = MetaType::string;
        entry.value.element_type = MetaType::string;
        entry.value.bytes = json.string("a value of __metadata__");
        entries.push_back(std::move(entry));
    }
    Metadata metadata(std::string(file), std::move(entries));
    if (const Metadata::Entry* repeated = metadata.first_repeated(); repeated != nullptr) {
        fail_at(file, Reason::duplicate, repeated->position, "metadata key {} appears twice",
                printable(repeated->key));
    }
    return metadata;
}

const DataType* read_data_type(JsonReader& json) {
    const uint64_t at = json.position();
    const std::string name = json.string("dtype");
    const auto* const found = std::find_if(k_data_types.begin(), k_data_types.end(),
                                           [&](const DataType& type) { return type.name == name; });
    if (found == k_data_types.end()) {
        json.fail_at(Reason::type, at, format_text("dtype {} is unknown", printable(name)));
    }
    return found;
}

void read_shape(JsonReader& json, std::vector<int64_t>& shape) {
    json.begin_array("shape");
    while (json.next_element()) {
        const uint64_t at = json.position();
        const uint64_t dim = json.whole_number("a dimension", Reason::shape);
        if (dim > uint64_t{INT64_MAX})
            json.fail_at(Reason::shape, at, format_text("dimension {} is too large", dim));
        if (shape.size() == k_max_shape_numbers) {
            json.fail_at(Reason::limit, at, format_text("more than {} dimensions", k_max_shape_numbers));
        }
        shape.push_back(static_cast<int64_t>(dim));
    }
}

void read_range(JsonReader& json, Record& record) {
    std::array<uint64_t, 2> range{};
    size_t count = 0;
    const uint64_t at = json.position();
    json.begin_array("data_offsets");
    while (json.next_element()) {
        const uint64_t value = json.whole_number("a data offset", Reason::offset);
        if (count < range.size()) range[count] = value;
        ++count;
    }
    if (count != range.size()) {
        json.fail_at(Reason::format, at, format_text("data_offsets has {} elements instead of 2", count));
    }
    record.begin = range[0];
    record.end = range[1];
}

Record read_record(JsonReader& json, Tensor& tensor) {
    Record record;
    record.position = json.position();
    json.begin_object("a tensor");
    const auto once = [&](bool seen, std::string_view field) {
        if (seen) {
            json.fail_here(Reason::duplicate,
                           format_text("tensor {}: {} appears twice", printable(tensor.name), field));
        }
    };
    std::string field;
    while (json.next_member(field)) {
        if (field == "dtype") {
            once(record.type != nullptr, field);
            record.type = read_data_type(json);
        } else if (field == "shape") {
            once(record.has_shape, field);
            record.has_shape = true;
            read_shape(json, tensor.shape);
        } else if (field == "data_offsets") {
            once(record.has_range, field);
            record.has_range = true;
            read_range(json, record);
        } else {
            json.skip_value();
        }
    }
    const std::string_view missing = record.type == nullptr ? "dtype"
                                     : !record.has_shape    ? "shape"
                                     : !record.has_range    ? "data_offsets"
                                                            : "";
    if (!missing.empty()) {
        json.fail_at(Reason::format, record.position,
                     format_text("tensor {}: {} is missing", printable(tensor.name), missing));
    }
    return record;
}

uint64_t bytes_of(const Tensor& tensor, const Record& record, std::string_view file) {
    uint64_t bits = record.type->bits;
    bool fits = true;
    uint64_t elements = 1;
    for (const int64_t dim : tensor.shape)
        fits = fits && checked_mul(elements, static_cast<uint64_t>(dim), elements);
    fits = fits && checked_mul(elements, record.type->bits, bits);
    if (!fits) {
        fail_at(file, Reason::shape, record.position, "tensor {}: the size of its shape overflows",
                printable(tensor.name));
    }
    if (bits % 8 != 0) {
        fail_at(file, Reason::shape, record.position, "tensor {}: {} elements of {} bits are not whole bytes",
                printable(tensor.name), elements, record.type->bits);
    }
    return bits / 8;
}

// Compares the fields with each other and with the data, and completes the tensor.
void place(Tensor& tensor, const Record& record, uint64_t data_start, const ByteSource& source) {
    const uint64_t data_bytes = source.size() - data_start;
    tensor.format = record.type->format;
    tensor.type_name = record.type->name;
    tensor.bytes = bytes_of(tensor, record, source.name());
    if (record.begin > record.end) {
        fail_at(source.name(), Reason::offset, record.position,
                "tensor {}: its data begins at {} and ends at {}", printable(tensor.name), record.begin,
                record.end);
    }
    if (record.end - record.begin != tensor.bytes) {
        fail_at(source.name(), Reason::shape, record.position,
                "tensor {}: its shape needs {} bytes, its range [{}, {}) has {}", printable(tensor.name),
                tensor.bytes, record.begin, record.end, record.end - record.begin);
    }
    if (record.end > data_bytes) {
        fail_at(source.name(), Reason::truncated, record.position,
                "tensor {}: its data ends at {}, the file at {}", printable(tensor.name), record.end,
                data_bytes);
    }
    tensor.offset = data_start + record.begin;
}

// Checks that the ranges, sorted by position, follow one another without gaps from the first byte of the data to the
// last.
void check_tiling(const std::vector<Tensor>& tensors, const std::vector<Record>& records, uint64_t data_start,
                  const ByteSource& source) {
    std::vector<uint32_t> order(tensors.size());
    std::iota(order.begin(), order.end(), 0U);
    std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
        return std::tuple(tensors[a].offset, tensors[a].bytes, a) <
               std::tuple(tensors[b].offset, tensors[b].bytes, b);
    });
    uint64_t covered = data_start;
    for (const uint32_t index : order) {
        const Tensor& tensor = tensors[index];
        if (tensor.offset != covered) {
            fail_at(source.name(), Reason::offset, records[index].position,
                    "tensor {}: its data begins at byte {}, but the data before it ends at byte {}",
                    printable(tensor.name), tensor.offset, covered);
        }
        covered += tensor.bytes;
    }
    if (covered != source.size()) {
        fail_at(source.name(), Reason::offset, covered, "{} bytes after the last tensor",
                source.size() - covered);
    }
}

}  // namespace

SafetensorsHeader read_safetensors_header(const ByteSource& source) {
    const std::string text = read_json(source);
    const uint64_t data_start = k_length_bytes + text.size();
    JsonReader json(source.name(), text, k_length_bytes);
    SafetensorsHeader header;
    std::vector<Record> records;
    bool has_metadata = false;
    std::string name;
    json.begin_object("the header");
    while (json.next_member(name)) {
        if (name == "__metadata__") {
            if (has_metadata) json.fail_here(Reason::duplicate, "__metadata__ appears twice");
            has_metadata = true;
            header.metadata = read_metadata(json, source.name());
            continue;
        }
        Tensor tensor;
        tensor.name = name;
        records.push_back(read_record(json, tensor));
        header.tensors.push_back(std::move(tensor));
    }
    json.end_of_text(true);

    const std::vector<Tensor>& tensors = header.tensors;
    if (const auto repeated = find_repeated(tensors, order_by_name(tensors, &Tensor::name), &Tensor::name)) {
        fail_at(source.name(), Reason::duplicate, records[*repeated].position, "tensor {} appears twice",
                printable(tensors[*repeated].name));
    }
    for (size_t i = 0; i < tensors.size(); ++i) place(header.tensors[i], records[i], data_start, source);
    check_tiling(tensors, records, data_start, source);
    return header;
}

}  // namespace minim::checkpoint
