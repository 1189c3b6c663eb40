// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/gguf_header.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <span>
#include <utility>

#include "base/checked.h"
#include "checkpoint/foreign_file.h"
#include "checkpoint/gguf_metadata.h"
#include "checkpoint/name_order.h"
#include "checkpoint/printable.h"
#include "format/format.h"

namespace minim::checkpoint {
namespace {

constexpr uint64_t k_fixed_header_bytes = 24;
constexpr uint64_t k_smallest_entry_bytes = 13;   // key length, type, one byte
constexpr uint64_t k_smallest_record_bytes = 24;  // name length, dimension count, type, offset
constexpr uint32_t k_max_dimensions = 4;
constexpr uint64_t k_default_alignment = 32;
constexpr uint64_t k_largest_alignment = uint64_t{1} << 20;
constexpr uint64_t k_largest_size = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());

// A safetensors file begins with the length of its header, which is a JSON object.
bool is_safetensors(const ByteSource& source) {
    std::array<char, 9> start{};
    if (source.size() < start.size()) return false;
    source.read_at(0, std::as_writable_bytes(std::span(start)));
    uint64_t length = 0;
    std::memcpy(&length, start.data(), sizeof(length));
    return start[8] == '{' && length > 1 && length < source.size();
}

uint32_t read_version(HeaderReader& in, const ByteSource& source) {
    std::array<char, 4> magic{};
    in.read(std::as_writable_bytes(std::span(magic)), "the magic");
    if (std::string_view(magic.data(), magic.size()) != "GGUF") {
        const std::string what = is_safetensors(source)
                                     ? "it is a safetensors file: give it a name that ends in .safetensors"
                                     : describe_foreign(source);
        fail_at(in.file(), Reason::format, 0, "not a GGUF file: {}{}", what.empty() ? "it begins with " : "",
                what.empty() ? printable(std::string_view(magic.data(), magic.size())) : what);
    }
    const auto version = in.number<uint32_t>("the version");
    if (version != 0 && (version & 0xFFFFU) == 0) {
        fail_at(in.file(), Reason::format, 4, "the file is big-endian (version reads {:#010x})", version);
    }
    if (version != 2 && version != 3) {
        fail_at(in.file(), Reason::format, 4, "GGUF version {} is not supported, only 2 and 3", version);
    }
    return version;
}

uint64_t read_count(HeaderReader& in, std::string_view what, uint64_t bytes_left, uint64_t smallest_bytes) {
    const uint64_t at = in.position();
    const auto count = in.number<uint64_t>(what);
    if (count > k_count_cap) {
        fail_at(in.file(), Reason::limit, at, "{} is {}, the limit is {}", what, count, k_count_cap);
    }
    if (count > bytes_left / smallest_bytes) {
        fail_at(in.file(), Reason::limit, at, "{} is {}, more than {} bytes can hold", what, count,
                bytes_left);
    }
    return count;
}

uint64_t alignment_of(const Metadata& metadata, std::string_view file) {
    constexpr std::string_view k_key = "general.alignment";
    const Metadata::Entry* entry = metadata.find_entry(k_key);
    if (entry == nullptr) return k_default_alignment;
    if (entry->value.type != MetaType::u32) {
        fail_at(file, Reason::value, entry->position, "{} is of type {}, it must be u32", k_key,
                name_of(entry->value.type));
    }
    const uint64_t alignment = entry->value.unsigned_at(0);
    if (!std::has_single_bit(alignment) || alignment > k_largest_alignment) {
        fail_at(file, Reason::value, entry->position, "{} is {}, it must be a power of two up to {}", k_key,
                alignment, k_largest_alignment);
    }
    return alignment;
}

// Dimensions as in the file, contiguous one first; missing ones are 1.
using Dimensions = std::array<uint64_t, k_max_dimensions>;

uint64_t bytes_of(Format format, const Dimensions& dims, std::string_view file, uint64_t at,
                  const Tensor& tensor) {
    int64_t elements = 1;
    for (const uint64_t dim : dims) {
        if (dim > k_largest_size || !checked_mul(elements, static_cast<int64_t>(dim), elements)) {
            fail_at(file, Reason::shape, at, "tensor {}: {} x {} x {} x {} elements overflow",
                    printable(tensor.name), dims[0], dims[1], dims[2], dims[3]);
        }
    }
    const FormatTraits& layout = traits(format);
    if (dims[0] % static_cast<uint64_t>(layout.block_elems) != 0) {
        fail_at(file, Reason::shape, at,
                "tensor {}: a row of {} elements is not a multiple of {}, the block of {}",
                printable(tensor.name), dims[0], layout.block_elems, layout.name);
    }
    uint64_t bytes = 0;
    bool fits = row_bytes(format, dims[0], bytes);
    for (size_t i = 1; i < dims.size(); ++i) fits = fits && checked_mul(bytes, dims[i], bytes);
    if (!fits || bytes > k_largest_size) {
        fail_at(file, Reason::shape, at, "tensor {}: the size of {} x {} x {} x {} elements of {} overflows",
                printable(tensor.name), dims[0], dims[1], dims[2], dims[3], layout.name);
    }
    return bytes;
}

// Returns the record as it is in the file: the offset still counts from the start of the data section.
Tensor read_record(HeaderReader& in) {
    Tensor tensor;
    tensor.name = read_gguf_name(in, "a tensor name");
    const uint64_t dims_at = in.position();
    const auto count = in.number<uint32_t>("a dimension count");
    if (count > k_max_dimensions) {
        fail_at(in.file(), Reason::shape, dims_at, "tensor {} has {} dimensions, at most {} are supported",
                printable(tensor.name), count, k_max_dimensions);
    }
    Dimensions dims;
    dims.fill(1);
    for (uint32_t i = 0; i < count; ++i) {
        const uint64_t at = in.position();
        dims[i] = in.number<uint64_t>("a dimension");
        if (dims[i] > k_largest_size) {
            fail_at(in.file(), Reason::shape, at, "tensor {}: dimension {} is {}", printable(tensor.name), i,
                    static_cast<int64_t>(dims[i]));
        }
    }
    const uint64_t type_at = in.position();
    const auto type = in.number<uint32_t>("a tensor type");
    const std::optional<Format> format = format_from_gguf_type(type);
    if (!format) {
        fail_at(in.file(), Reason::type, type_at, "tensor {} has type {}: {}", printable(tensor.name), type,
                why_gguf_type_is_refused(type));
    }
    tensor.format = format;
    tensor.type_name = traits(*format).name;
    tensor.bytes = bytes_of(*format, dims, in.file(), dims_at, tensor);
    tensor.shape.assign(dims.rend() - count, dims.rend());
    tensor.offset = in.number<uint64_t>("a tensor offset");
    return tensor;
}

// Checks the offset of the tensor, and makes it count from the start of the file. `at` is the position of the record.
void place(Tensor& tensor, uint64_t data_start, uint64_t alignment, const ByteSource& source, uint64_t at) {
    const uint64_t data_bytes = source.size() > data_start ? source.size() - data_start : 0;
    if (tensor.offset % alignment != 0) {
        fail_at(source.name(), Reason::offset, at,
                "tensor {}: offset {} is not a multiple of the alignment {}", printable(tensor.name),
                tensor.offset, alignment);
    }
    if (tensor.offset > data_bytes) {
        fail_at(source.name(), Reason::offset, at,
                "tensor {}: offset {} is past the end of the data, {} bytes", printable(tensor.name),
                tensor.offset, data_bytes);
    }
    if (tensor.bytes > data_bytes - tensor.offset) {
        fail_at(source.name(), Reason::truncated, at,
                "tensor {}: {} bytes needed from offset {}, the data ends after {}", printable(tensor.name),
                tensor.bytes, tensor.offset, data_bytes - tensor.offset);
    }
    tensor.offset += data_start;
}

void check_overlaps(const std::vector<Tensor>& tensors, std::span<const uint64_t> records,
                    std::string_view file) {
    std::vector<uint32_t> order;
    for (uint32_t i = 0; i < tensors.size(); ++i) {
        if (tensors[i].bytes != 0) order.push_back(i);
    }
    std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
        return std::pair(tensors[a].offset, a) < std::pair(tensors[b].offset, b);
    });
    for (size_t i = 1; i < order.size(); ++i) {
        const Tensor& before = tensors[order[i - 1]];
        const Tensor& here = tensors[order[i]];
        if (before.offset + before.bytes > here.offset) {
            fail_at(file, Reason::offset, records[order[i]], "tensor {} overlaps tensor {} at byte {}",
                    printable(here.name), printable(before.name), here.offset);
        }
    }
}

void check_names(const std::vector<Tensor>& tensors, std::span<const uint64_t> records,
                 std::string_view file) {
    const auto repeated = find_repeated(tensors, order_by_name(tensors, &Tensor::name), &Tensor::name);
    if (repeated) {
        fail_at(file, Reason::duplicate, records[*repeated], "tensor {} appears twice",
                printable(tensors[*repeated].name));
    }
}

}  // namespace

GgufHeader read_gguf_header(const ByteSource& source) {
    HeaderReader in(source);
    if (source.size() == 0) fail_at(source.name(), Reason::truncated, 0, "the file is empty");
    GgufHeader header;
    header.version = read_version(in, source);
    if (source.size() < k_fixed_header_bytes) {
        fail_at(source.name(), Reason::truncated, source.size(), "the file ends inside the header");
    }
    const uint64_t bytes_left = source.size() - k_fixed_header_bytes;
    const uint64_t tensor_count = read_count(in, "the tensor count", bytes_left, k_smallest_record_bytes);
    const uint64_t entry_count = read_count(in, "the metadata count", bytes_left, k_smallest_entry_bytes);

    header.metadata = read_gguf_metadata(in, entry_count);
    header.alignment = alignment_of(header.metadata, source.name());

    std::vector<uint64_t> records;  // where each record begins
    for (uint64_t i = 0; i < tensor_count; ++i) {
        records.push_back(in.position());
        header.tensors.push_back(read_record(in));
    }
    check_names(header.tensors, records, source.name());
    const uint64_t data_start = align_up(in.position(), header.alignment);
    for (size_t i = 0; i < header.tensors.size(); ++i) {
        place(header.tensors[i], data_start, header.alignment, source, records[i]);
    }
    check_overlaps(header.tensors, records, source.name());
    return header;
}

}  // namespace minim::checkpoint
