// SPDX-License-Identifier: Apache-2.0
// The printable stand-ins of byte-level vocabularies: every byte is written as one code point, so that any
// byte string is readable text without spaces. Bytes 0x21-0x7E, 0xA1-0xAC and 0xAE-0xFF stand for themselves;
// the other 68, in increasing order, are U+0100, U+0101, ... (0x0A is U+010A, 0x20 is U+0120).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace minim::tokenizer {

char32_t stand_in(uint8_t byte) noexcept;

std::string to_stand_ins(std::string_view bytes);

// Appends the bytes that `text` stands for. Returns false, with `bytes` unchanged, if it has anything but
// stand-ins.
bool append_bytes_of_stand_ins(std::string_view text, std::string& bytes);

}  // namespace minim::tokenizer
