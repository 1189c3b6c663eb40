// SPDX-License-Identifier: Apache-2.0
#include "golden.h"

#include "support/files.h"

namespace minim::test {

std::vector<std::byte> read_data_file(const std::string& name) {
    const std::string chars = text_of(MINIM_TEST_DATA "/format/" + name);
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
