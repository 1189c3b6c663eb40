// SPDX-License-Identifier: Apache-2.0
#include "golden.h"

#include <fstream>
#include <iterator>
#include <stdexcept>

namespace minim::test {

std::vector<std::byte> read_data_file(const std::string& name) {
    std::ifstream file(MINIM_TEST_DATA "/format/" + name, std::ios::binary);
    if (!file) throw std::runtime_error("no test data " + name);
    const std::vector<char> chars{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    std::vector<std::byte> bytes(chars.size());
    std::memcpy(bytes.data(), chars.data(), chars.size());
    return bytes;
}

const nlohmann::json& golden_index() {
    static const nlohmann::json index = [] {
        const std::vector<std::byte> text = read_data_file("golden.json");
        const auto* begin = reinterpret_cast<const char*>(text.data());
        return nlohmann::json::parse(begin, begin + text.size());
    }();
    return index;
}

GoldenFile::GoldenFile(const nlohmann::json& entry)
    : entry_(entry), bytes_(read_data_file(entry.at("file").get<std::string>())) {}

GoldenFile golden_type(const std::string& name) {
    return GoldenFile(golden_index().at("types").at(name));
}

GoldenFile golden_other(const std::string& name) {
    return GoldenFile(golden_index().at("other").at(name));
}

}  // namespace minim::test
