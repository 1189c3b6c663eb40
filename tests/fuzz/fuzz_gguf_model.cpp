// SPDX-License-Identifier: Apache-2.0
// Any bytes as the header of a model's GGUF: its metadata give a shape that can be computed and a tokenizer that gives text back,
// or an error that says what is wrong or not supported.
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/log.h"
#include "checkpoint/gguf_header.h"
#include "config_shape.h"
#include "model/config.h"
#include "model/vocabulary.h"
#include "require.h"
#include "text_back.h"

namespace {

using namespace minim;

template <typename Read>
void check(const Read& read) {
    fuzz::require_refusal({Status::format, Status::unsupported}, "metadata are good, wrong or not supported",
                          read);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const checkpoint::ByteSource source("fuzz.gguf", std::as_bytes(std::span(data, size)));
    const Logger silent;
    check([&] {
        const checkpoint::GgufHeader header = checkpoint::read_gguf_header(source);
        check([&] { fuzz::require_shape(model::config_from_gguf(header.metadata, silent)); });
        check([&] {
            fuzz::require_text_comes_back(
                {model::vocabulary_from_gguf(header.metadata, silent), tokenizer::PieceRules::model, silent});
        });
    });
    return 0;
}
