// SPDX-License-Identifier: Apache-2.0
#include "ranks/texts.h"

#include <cstdint>
#include <cstring>

#include "base/error.h"

namespace minim::ranks {

std::vector<std::byte> encode_texts(std::span<const std::string> texts) {
    size_t n_bytes = sizeof(uint32_t);
    for (const std::string& text : texts) n_bytes += sizeof(uint32_t) + text.size();
    std::vector<std::byte> bytes(n_bytes);
    std::byte* end = bytes.data();
    const auto add = [&](const void* data, size_t size) {
        if (size > 0) std::memcpy(end, data, size);
        end += size;
    };
    const auto add_number = [&](size_t value) {
        const auto number = static_cast<uint32_t>(value);
        add(&number, sizeof(number));
    };
    add_number(texts.size());
    for (const std::string& text : texts) {
        add_number(text.size());
        add(text.data(), text.size());
    }
    return bytes;
}

std::vector<std::string> parse_texts(std::span<const std::byte> bytes, std::string_view what) {
    const auto take_number = [&] {
        uint32_t number = 0;
        if (bytes.size() < sizeof(number)) fail_file(Reason::truncated, "{} ends within a number", what);
        std::memcpy(&number, bytes.data(), sizeof(number));
        bytes = bytes.subspan(sizeof(number));
        return number;
    };
    std::vector<std::string> texts;
    const uint32_t n = take_number();
    for (uint32_t i = 0; i < n; ++i) {
        const uint32_t n_bytes = take_number();
        if (n_bytes > bytes.size())
            fail_file(Reason::truncated, "{} has a text of {} bytes where {} are left", what, n_bytes,
                      bytes.size());
        texts.emplace_back(reinterpret_cast<const char*>(bytes.data()), n_bytes);
        bytes = bytes.subspan(n_bytes);
    }
    return texts;
}

}  // namespace minim::ranks
