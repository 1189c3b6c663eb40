// SPDX-License-Identifier: Apache-2.0
// Any bytes as a tokenizer.json: they give a vocabulary, perhaps with a tokenizer that must give text back, or an
// error that says what is wrong with the file.
#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "base/log.h"
#include "require.h"
#include "text_back.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace minim::tokenizer;
    using minim::fuzz::require;
    const std::string_view json(reinterpret_cast<const char*>(data), size);
    const minim::Logger silent;
    try {
        minim::fuzz::require_text_comes_back(
            {vocabulary_from_json(json, "", "", silent), PieceRules::model, silent});
    } catch (const minim::Error& error) {
        require(error.status() == minim::Status::format || error.status() == minim::Status::unsupported,
                "errors speak of the file");
    }
    return 0;
}
