// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/printable.h"

#include <cstdint>
#include <iterator>

#include "base/format_text.h"
#include "base/utf8.h"

namespace minim::checkpoint {

std::string printable(std::string_view text, size_t max_bytes) {
    std::string out = "\"";
    size_t at = 0;
    while (at < text.size() && at < max_bytes) {
        const size_t length = utf8_sequence_length(text.substr(at));
        const auto byte = static_cast<uint8_t>(text[at]);
        if (length == 0 || byte < 0x20 || byte == 0x7F) {
            out += format_text("\\x{:02X}", byte);
            ++at;
            continue;
        }
        if (byte == '"' || byte == '\\') out += '\\';
        out += text.substr(at, length);
        at += length;
    }
    out += '"';
    if (at < text.size()) out += "...";
    return out;
}

std::string shape_text(std::span<const int64_t> shape) {
    return format_text("[{}]", fmt::join(shape, ", "));
}

}  // namespace minim::checkpoint
