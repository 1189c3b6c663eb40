// SPDX-License-Identifier: Apache-2.0
// Safetensors files of invented tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "support/gguf_writer.h"

namespace minim::test {

struct Stored {
    std::string type = "F32";
    std::vector<int64_t> shape;
    std::vector<std::byte> data;
};
using Folder = std::map<std::string, Stored>;  // tensors by safetensors name

inline Stored stored(const std::vector<int64_t>& shape, const float* values) {
    size_t count = 1;
    for (const int64_t dim : shape) count *= static_cast<size_t>(dim);
    const auto bytes = std::as_bytes(std::span(values, count));
    return {"F32", shape, {bytes.begin(), bytes.end()}};
}

inline void write(const Folder& tensors, const std::string& path) {
    nlohmann::json header = nlohmann::json::object();
    ByteWriter data;
    for (const auto& [name, tensor] : tensors) {
        const size_t begin = data.bytes.size();
        data.raw(tensor.data);
        header[name] = {
            {"dtype", tensor.type}, {"shape", tensor.shape}, {"data_offsets", {begin, data.bytes.size()}}};
    }
    ByteWriter file;
    file.string(header.dump());
    file.raw(data.bytes);
    write_bytes(path, file.bytes);
}

}  // namespace minim::test
