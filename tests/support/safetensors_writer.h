// SPDX-License-Identifier: Apache-2.0
// Writes safetensors files for tests, byte for byte as the library of that name does: tensors of larger elements first, then
// by name.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "support/gguf_writer.h"

namespace minim::test {

struct SafetensorsTensor {
    std::string name;
    std::string_view type;        // "BF16", "F8_E4M3", ...
    std::vector<uint64_t> shape;  // outermost first
    std::vector<std::byte> data;
};

inline void write_safetensors(const std::string& path, std::vector<SafetensorsTensor> tensors) {
    static constexpr std::array<std::string_view, 6> k_order = {"F32", "I32", "BF16", "F16", "F8_E4M3", "U8"};
    std::ranges::sort(tensors, {}, [](const SafetensorsTensor& tensor) {
        return std::pair(std::ranges::find(k_order, tensor.type), std::string_view(tensor.name));
    });
    std::string header = R"({"__metadata__":{"format":"pt"})";
    size_t at = 0;
    for (const SafetensorsTensor& tensor : tensors) {
        header += fmt::format(R"(,"{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", tensor.name,
                              tensor.type, fmt::join(tensor.shape, ","), at, at + tensor.data.size());
        at += tensor.data.size();
    }
    header += '}';
    header.resize((header.size() + 7) / 8 * 8, ' ');
    ByteWriter out;
    out.string(header);
    for (const SafetensorsTensor& tensor : tensors) out.raw(tensor.data);
    write_bytes(path, out.bytes);
}

}  // namespace minim::test
