// SPDX-License-Identifier: Apache-2.0
// The bundled model's tokenizer.
#pragma once

#include <fstream>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <string>

#include "base/log.h"
#include "tokenizer/tokenizer.h"

namespace minim::test {

inline std::shared_ptr<const tokenizer::Tokenizer> tiny_tokenizer() {
    const auto read = [](const std::string& name) {
        std::ifstream file(MINIM_TEST_DATA "/tokenizer/minim-tiny/" + name, std::ios::binary);
        if (!file) throw std::runtime_error("cannot read " + name);
        return std::string(std::istreambuf_iterator<char>(file), {});
    };
    return std::make_shared<const tokenizer::Tokenizer>(
        tokenizer::vocabulary_from_json(read("tokenizer.json"), read("tokenizer_config.json"), "", Logger()),
        tokenizer::PieceRules::model, Logger());
}

}  // namespace minim::test
