// SPDX-License-Identifier: Apache-2.0
// Any bytes as text: the scanner's pieces cover it in order, whatever the rules, and each piece is not empty.
#include <cstdint>
#include <string>
#include <string_view>

#include "require.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/stream_decoder.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace minim::tokenizer;
    using minim::fuzz::require;
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    for (const PieceRules rules : {PieceRules::model, PieceRules::gguf_engine}) {
        const PieceScanner scanner(text, rules);
        for (size_t at = 0; at < text.size();) {
            const size_t end = scanner.piece_end(at);
            require(end > at && end <= text.size(), "pieces cover the text");
            at = end;
        }
    }
    // However the bytes are cut, the decoded text is the same.
    StreamDecoder whole;
    StreamDecoder bytewise;
    std::string expected = whole.push(text);
    whole.finish(expected);
    std::string actual;
    for (const char byte : text) {
        bytewise.push(std::string_view(&byte, 1), actual);
        require(bytewise.pending_bytes() <= 3, "at most 3 bytes are held back");
    }
    bytewise.finish(actual);
    require(actual == expected, "cuts change nothing");
    return 0;
}
