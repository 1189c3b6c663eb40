#include "checkpoint/printable.h"

#include <fmt/format.h>

#include <cstdint>
#include <iterator>

namespace minim::checkpoint {
namespace {

bool is_continuation(char byte) {
    return (static_cast<uint8_t>(byte) & 0xC0U) == 0x80U;
}

}  // namespace

size_t utf8_sequence_length(std::string_view text) noexcept {
    if (text.empty()) return 0;
    const auto lead = static_cast<uint8_t>(text[0]);
    if (lead < 0x80) return 1;
    if (lead < 0xC2 || lead > 0xF4) return 0;
    const size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    if (text.size() < length) return 0;
    for (size_t i = 1; i < length; ++i) {
        if (!is_continuation(text[i])) return 0;
    }
    // The second byte decides whether the value is overlong, a surrogate or too large (Unicode, table 3-7).
    const auto second = static_cast<uint8_t>(text[1]);
    if (lead == 0xE0 && second < 0xA0) return 0;
    if (lead == 0xED && second > 0x9F) return 0;
    if (lead == 0xF0 && second < 0x90) return 0;
    if (lead == 0xF4 && second > 0x8F) return 0;
    return length;
}

std::string printable(std::string_view text, size_t max_bytes) {
    std::string out = "\"";
    size_t at = 0;
    while (at < text.size() && at < max_bytes) {
        const size_t length = utf8_sequence_length(text.substr(at));
        const auto byte = static_cast<uint8_t>(text[at]);
        if (length == 0 || byte < 0x20 || byte == 0x7F) {
            fmt::format_to(std::back_inserter(out), "\\x{:02X}", byte);
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

}  // namespace minim::checkpoint
