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

#include "checkpoint/byte_writer.h"
#include "checkpoint/gguf_writer.h"
#include "support/files.h"

namespace minim::test {

using checkpoint::ByteWriter;

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
        add_entry(key, checkpoint::meta_value(value));
    }
    void add(std::string_view key, std::string_view text) { add_entry(key, checkpoint::meta_text(text)); }
    void add(std::string_view key, const char* text) { add(key, std::string_view(text)); }

    template <typename T>
    void add_array(std::string_view key, const std::vector<T>& values) {
        if constexpr (std::is_same_v<T, std::string>) {
            add_entry(key, checkpoint::meta_texts(values));
        } else {
            checkpoint::MetaValue array = {
                checkpoint::MetaType::array, checkpoint::meta_type_of<T>(), values.size(), {}, {}};
            for (const T value : values) array.bytes += checkpoint::meta_value(value).bytes;
            add_entry(key, array);
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
        if (alignment != 32)
            checkpoint::append_entry(out, "general.alignment",
                                     checkpoint::meta_value(static_cast<uint32_t>(alignment)));
        ByteWriter data;
        for (const GgufTensor& tensor : tensors) {
            data.pad_to(alignment);
            const uint64_t offset =
                tensor.offset < 0 ? data.bytes.size() : static_cast<uint64_t>(tensor.offset);
            checkpoint::append_record(out, tensor.name, tensor.dims, tensor.type, offset);
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
    void add_entry(std::string_view key, const checkpoint::MetaValue& value) {
        checkpoint::append_entry(entries_, key, value);
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
