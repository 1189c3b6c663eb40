// SPDX-License-Identifier: Apache-2.0
// Writes headers of GGUF files (gguf_header.h describes them), and cuts a model into parts as llama-gguf-split does. The tensors'
// bytes are the caller's: a header says where each of them goes.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "checkpoint/byte_writer.h"
#include "checkpoint/metadata.h"

namespace minim::checkpoint {

inline constexpr uint64_t k_gguf_alignment = 32;  // of files without general.alignment

// Returns the type of a C++ number in metadata.
template <typename T>
constexpr MetaType meta_type_of() {
    if constexpr (std::is_same_v<T, bool>) return MetaType::boolean;
    if constexpr (std::is_same_v<T, float>) return MetaType::f32;
    if constexpr (std::is_same_v<T, double>) return MetaType::f64;
    if constexpr (std::is_same_v<T, uint8_t>) return MetaType::u8;
    if constexpr (std::is_same_v<T, int8_t>) return MetaType::i8;
    if constexpr (std::is_same_v<T, uint16_t>) return MetaType::u16;
    if constexpr (std::is_same_v<T, int16_t>) return MetaType::i16;
    if constexpr (std::is_same_v<T, uint32_t>) return MetaType::u32;
    if constexpr (std::is_same_v<T, int32_t>) return MetaType::i32;
    if constexpr (std::is_same_v<T, uint64_t>) return MetaType::u64;
    if constexpr (std::is_same_v<T, int64_t>) return MetaType::i64;
}

// Return values of metadata.
template <typename T>
requires std::is_arithmetic_v<T> MetaValue meta_value(T number) {
    constexpr MetaType type = meta_type_of<T>();
    return {type, type, 1, std::string(reinterpret_cast<const char*>(&number), sizeof(number)), {}};
}
MetaValue meta_text(std::string_view text);
MetaValue meta_texts(std::span<const std::string> texts);
template <typename T>
requires std::is_arithmetic_v<T> MetaValue meta_array(std::span<const T> numbers) {
    return {MetaType::array,
            meta_type_of<T>(),
            numbers.size(),
            std::string(reinterpret_cast<const char*>(numbers.data()), numbers.size_bytes()),
            {}};
}

// Append one entry of the metadata: key, type, value.
void append_entry(ByteWriter& out, std::string_view key, const MetaValue& value);
// Appends one tensor record. `dims`: contiguous one first. `offset` counts from the start of the data section.
void append_record(ByteWriter& out, std::string_view name, std::span<const uint64_t> dims, uint32_t type,
                   uint64_t offset);

using MetaEntries = std::vector<std::pair<std::string, MetaValue>>;

// A tensor of a file that is written. Its bytes need not exist yet.
struct NewTensor {
    std::string name;
    std::vector<int64_t> shape;  // outermost first
    uint32_t type = 0;           // of GGUF
    uint64_t bytes = 0;
};

// The header of a file, and where the bytes of its tensors go.
struct NewHeader {
    std::vector<std::byte> bytes;   // version 3, up to the data section
    std::vector<uint64_t> offsets;  // of each tensor, from the start of the file
    uint64_t file_bytes = 0;        // with the padding after the last tensor
};

// Lays out a file: the tensors one after the other, each padded to the alignment that the metadata state.
NewHeader make_gguf_header(const MetaEntries& metadata, std::span<const NewTensor> tensors);

// How a model is cut into parts.
struct PartLimits {
    uint64_t bytes = 0;                  // of padded tensor data in a part; 0: no limit
    int64_t tensors = 0;                 // in a part; 0: no limit
    bool first_without_tensors = false;  // the first part has the metadata alone
    std::vector<int64_t> counts = {};    // tensors of each part; not empty: in place of the limits
};

// Returns the number of tensors in each part: at least one part, and no empty one but the first. A tensor above the limit has a part
// of its own.
std::vector<int64_t> cut_into_parts(std::span<const NewTensor> tensors, const PartLimits& limits);

// Returns the metadata of part `number`, from 0: the model's own in the first part, then split.no, split.tensors.count and split.count,
// unless there is one part. `metadata` must have none of these keys.
MetaEntries part_metadata(const MetaEntries& metadata, int64_t number, int64_t n_parts, int64_t n_tensors);

}  // namespace minim::checkpoint
