// SPDX-License-Identifier: Apache-2.0
// The bundled model's tokenizer.
#pragma once

#include <memory>
#include <string>

#include "base/log.h"
#include "support/files.h"
#include "tokenizer/tokenizer.h"

namespace minim::test {

inline std::shared_ptr<const tokenizer::Tokenizer> tiny_tokenizer() {
    const std::string folder = MINIM_TEST_DATA "/tokenizer/minim-tiny/";
    return std::make_shared<const tokenizer::Tokenizer>(
        tokenizer::vocabulary_from_json(text_of(folder + "tokenizer.json"),
                                        text_of(folder + "tokenizer_config.json"), "", Logger()),
        tokenizer::PieceRules::model, Logger());
}

}  // namespace minim::test
