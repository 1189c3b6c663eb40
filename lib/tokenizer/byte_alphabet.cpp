// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/byte_alphabet.h"

#include <array>

#include "base/utf8.h"

namespace minim::tokenizer {
namespace {

constexpr bool stands_for_itself(int byte) {
    return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

constexpr std::array<char32_t, 256> make_stand_ins() {
    std::array<char32_t, 256> table{};
    char32_t next = 0x100;
    for (int byte = 0; byte < 256; ++byte) {
        table[byte] = stands_for_itself(byte) ? static_cast<char32_t>(byte) : next++;
    }
    return table;
}

constexpr auto k_stand_ins = make_stand_ins();
constexpr int16_t k_no_byte = -1;

constexpr std::array<int16_t, 0x144> make_bytes() {
    std::array<int16_t, 0x144> table{};
    table.fill(k_no_byte);
    for (size_t byte = 0; byte < 256; ++byte) table[k_stand_ins[byte]] = static_cast<int16_t>(byte);
    return table;
}

constexpr auto k_bytes = make_bytes();
static_assert(k_stand_ins[0xAD] + 1 == k_bytes.size());

}  // namespace

char32_t stand_in(uint8_t byte) noexcept {
    return k_stand_ins[byte];
}

std::string to_stand_ins(std::string_view bytes) {
    std::string text;
    for (const char byte : bytes) append_utf8(stand_in(static_cast<uint8_t>(byte)), text);
    return text;
}

bool append_bytes_of_stand_ins(std::string_view text, std::string& bytes) {
    const size_t before = bytes.size();
    while (!text.empty()) {
        const Utf8Step step = next_utf8(text);
        const bool known = step.state == Utf8State::complete && step.code_point < k_bytes.size() &&
                           k_bytes[step.code_point] != k_no_byte;
        if (!known) {
            bytes.resize(before);
            return false;
        }
        bytes.push_back(static_cast<char>(k_bytes[step.code_point]));
        text.remove_prefix(step.length);
    }
    return true;
}

}  // namespace minim::tokenizer
