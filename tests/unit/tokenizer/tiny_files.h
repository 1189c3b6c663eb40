// SPDX-License-Identifier: Apache-2.0
// The bundled model's tokenizer files.
#pragma once

#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <string_view>

namespace minim::tokenizer::testing {

inline std::string read_data(std::string_view name) {
    std::ifstream file(std::string(MINIM_TEST_DATA "/tokenizer/").append(name), std::ios::binary);
    if (!file) throw std::runtime_error("cannot read tests/data/tokenizer/" + std::string(name));
    return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace minim::tokenizer::testing
