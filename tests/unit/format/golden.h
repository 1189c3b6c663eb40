// SPDX-License-Identifier: Apache-2.0
// The golden vectors of tests/data/format: golden.json names the sections of each binary file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace minim::test {

const nlohmann::json& golden_index();

// Reads tests/data/format/<name>.
std::vector<std::byte> read_data_file(const std::string& name);

// One entry of golden.json with its file: section<float>("expect").
class GoldenFile {
  public:
    explicit GoldenFile(const nlohmann::json& entry);

    const nlohmann::json& entry() const { return entry_; }
    int64_t number(const char* key) const { return entry_.at(key).get<int64_t>(); }

    template <typename T>
    std::vector<T> section(const std::string& name) const {
        const nlohmann::json& where = entry_.at("sections").at(name);
        size_t count = 1;
        for (const nlohmann::json& extent : where.at("shape")) count *= extent.get<size_t>();
        std::vector<T> values(count);
        const std::byte* from = bytes_.data() + where.at("offset").get<size_t>();
        if (from + count * sizeof(T) > bytes_.data() + bytes_.size()) throw std::out_of_range(name);
        std::memcpy(values.data(), from, count * sizeof(T));
        return values;
    }

  private:
    nlohmann::json entry_;
    std::vector<std::byte> bytes_;
};

GoldenFile golden_type(const std::string& name);   // a quantised type: "Q4_K"
GoldenFile golden_other(const std::string& name);  // "encode_ref", "F16", "BF16", "narrow"

}  // namespace minim::test
