// SPDX-License-Identifier: Apache-2.0
// Reads NumPy's .npy files (version 1, little-endian, C order), in which the goldens are stored.
#pragma once

#include <cstdint>
#include <cstring>
#include <fstream>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

namespace minim::test {

template <typename T>
struct Array {
    std::vector<int64_t> shape;
    std::vector<T> values;

    // Returns row r of the innermost dimension.
    const T* row(int64_t r) const { return values.data() + r * shape.back(); }
};

template <typename T>
Array<T> load_npy(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) throw std::runtime_error("cannot open " + path);
    char magic[8];
    uint16_t header_length = 0;
    file.read(magic, sizeof(magic));
    file.read(reinterpret_cast<char*>(&header_length), sizeof(header_length));
    std::string header(header_length, '\0');
    file.read(header.data(), header_length);
    const std::string wanted = std::is_same_v<T, float> ? "'<f4'" : "'<i4'";
    if (std::memcmp(magic, "\x93NUMPY\x01", 7) != 0 || header.find(wanted) == std::string::npos ||
        header.find("'fortran_order': False") == std::string::npos) {
        throw std::runtime_error(path + " is no array of the wanted type: " + header);
    }
    Array<T> array;
    size_t count = 1;
    size_t at = header.find('(', header.find("'shape'")) + 1;
    while (header[at] != ')') {
        size_t used = 0;
        array.shape.push_back(std::stoll(header.substr(at), &used));
        count *= static_cast<size_t>(array.shape.back());
        at += used;
        while (header[at] == ',' || header[at] == ' ') ++at;
    }
    array.values.resize(count);
    file.read(reinterpret_cast<char*>(array.values.data()), static_cast<std::streamsize>(count * sizeof(T)));
    if (!file) throw std::runtime_error(path + " is cut short");
    return array;
}

}  // namespace minim::test
