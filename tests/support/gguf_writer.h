// SPDX-License-Identifier: Apache-2.0
// Writes GGUF files for tests: metadata of every type, tensors with given bytes, split sets. It checks
// nothing, so that wrong files can be written too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "support/files.h"

namespace minim::test {

// Bytes with little-endian fields appended to them.
class ByteWriter {
  public:
    template <typename T>
    requires std::is_arithmetic_v<T>
    void number(T value) { raw(std::as_bytes(std::span(&value, 1))); }
    void string(std::string_view text) {
        number<uint64_t>(text.size());
        raw(std::as_bytes(std::span(text)));
    }
    void raw(std::span<const std::byte> more) {
        if (more.empty()) return;
        const size_t before = bytes.size();
        bytes.resize(before + more.size());
        std::memcpy(bytes.data() + before, more.data(), more.size());
    }
    void pad_to(size_t alignment) {
        while (bytes.size() % alignment != 0) bytes.push_back(std::byte{0});
    }

    std::vector<std::byte> bytes;
};

// Returns the code of a C++ type in GGUF metadata.
template <typename T>
constexpr uint32_t gguf_code() {
    if constexpr (std::is_same_v<T, uint8_t>) return 0;
    if constexpr (std::is_same_v<T, int8_t>) return 1;
    if constexpr (std::is_same_v<T, uint16_t>) return 2;
    if constexpr (std::is_same_v<T, int16_t>) return 3;
    if constexpr (std::is_same_v<T, uint32_t>) return 4;
    if constexpr (std::is_same_v<T, int32_t>) return 5;
    if constexpr (std::is_same_v<T, float>) return 6;
    if constexpr (std::is_same_v<T, bool>) return 7;
    if constexpr (std::is_same_v<T, uint64_t>) return 10;
    if constexpr (std::is_same_v<T, int64_t>) return 11;
    if constexpr (std::is_same_v<T, double>) return 12;
}

struct GgufTensor {
    std::string name;
    uint32_t type = 0;
    std::vector<uint64_t> dims;  // contiguous one first
    std::vector<std::byte> data;
    int64_t offset = -1;  // -1: behind the previous tensor, with padding
};

class GgufWriter {
  public:
    uint32_t version = 3;
    uint64_t alignment = 32;  // written as general.alignment where it is not 32
    bool pad_last = true;

    template <typename T>
    void add(std::string_view key, T value) {
        begin(key, gguf_code<T>());
        entries_.number(value);
    }
    void add(std::string_view key, std::string_view text) {
        begin(key, 8);
        entries_.string(text);
    }
    void add(std::string_view key, const char* text) { add(key, std::string_view(text)); }

    template <typename T>
    void add_array(std::string_view key, const std::vector<T>& values) {
        begin(key, 9);
        if constexpr (std::is_same_v<T, std::string>) {
            entries_.number(uint32_t{8});
            entries_.number<uint64_t>(values.size());
            for (const std::string& text : values) entries_.string(text);
        } else {
            entries_.number(gguf_code<T>());
            entries_.number<uint64_t>(values.size());
            for (const T value : values) entries_.number(value);
        }
    }

    void add_tensor(GgufTensor tensor) { tensors.push_back(std::move(tensor)); }
    void add_f32(std::string_view name, std::vector<uint64_t> dims, const std::vector<float>& values) {
        const auto bytes = std::as_bytes(std::span(values));
        tensors.push_back({std::string(name), 0, std::move(dims), {bytes.begin(), bytes.end()}});
    }

    std::vector<std::byte> bytes() const {
        ByteWriter out;
        out.raw(std::as_bytes(std::span("GGUF", 4)));
        out.number(version);
        out.number<uint64_t>(tensors.size());
        out.number<uint64_t>(entry_count_ + (alignment != 32 ? 1 : 0));
        out.raw(entries_.bytes);
        if (alignment != 32) {
            out.string("general.alignment");
            out.number(uint32_t{4});
            out.number(static_cast<uint32_t>(alignment));
        }
        ByteWriter data;
        for (const GgufTensor& tensor : tensors) {
            data.pad_to(alignment);
            out.string(tensor.name);
            out.number(static_cast<uint32_t>(tensor.dims.size()));
            for (const uint64_t dim : tensor.dims) out.number(dim);
            out.number(tensor.type);
            const uint64_t offset =
                tensor.offset < 0 ? data.bytes.size() : static_cast<uint64_t>(tensor.offset);
            out.number(offset);
            if (data.bytes.size() < offset + tensor.data.size())
                data.bytes.resize(offset + tensor.data.size());
            if (!tensor.data.empty())
                std::memcpy(data.bytes.data() + offset, tensor.data.data(), tensor.data.size());
        }
        if (pad_last) data.pad_to(alignment);
        out.pad_to(alignment);
        out.raw(data.bytes);
        return out.bytes;
    }

    void write(const std::string& path) const { write_bytes(path, bytes()); }

    std::vector<GgufTensor> tensors;

  private:
    void begin(std::string_view key, uint32_t type) {
        entries_.string(key);
        entries_.number(type);
        ++entry_count_;
    }

    ByteWriter entries_;
    uint64_t entry_count_ = 0;
};

inline std::string split_path(const std::string& folder, const std::string& prefix, size_t number,
                              size_t count) {
    char name[64];
    std::snprintf(name, sizeof(name), "-%05zu-of-%05zu.gguf", number, count);
    return (std::filesystem::path(folder) / (prefix + name)).string();
}

// Writes PREFIX-00001-of-0000N.gguf and so on: the first part has the metadata of `whole` and the split
// keys, the others have the split keys alone. tensors_per_part says how many of the tensors of `whole` each
// part takes, in order. Returns the path of the first part.
inline std::string write_split(const GgufWriter& whole, const std::string& folder, const std::string& prefix,
                               const std::vector<size_t>& tensors_per_part) {
    const size_t count = tensors_per_part.size();
    size_t next = 0;
    for (size_t i = 0; i < count; ++i) {
        GgufWriter part;
        if (i == 0) part = whole;
        part.tensors.clear();
        part.version = whole.version;
        part.alignment = whole.alignment;
        part.add("split.no", static_cast<uint16_t>(i));
        part.add("split.count", static_cast<uint16_t>(count));
        part.add("split.tensors.count", static_cast<int32_t>(whole.tensors.size()));
        for (size_t k = 0; k < tensors_per_part[i]; ++k) part.add_tensor(whole.tensors.at(next++));
        part.write(split_path(folder, prefix, i + 1, count));
    }
    return split_path(folder, prefix, 1, count);
}

}  // namespace minim::test
