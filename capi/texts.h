// SPDX-License-Identifier: Apache-2.0
// Converts text and token arguments to the library's types.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "base/descriptor.h"
#include "base/error.h"
#include "minim/minim.h"
#include "tokenizer/tokenizer.h"

namespace minim::capi {

// Returns `length` bytes, or those up to the terminating zero for SIZE_MAX. Null is the empty text if the length is 0.
inline std::string_view text_argument(const char* text, size_t length, const char* name) {
    if (text == nullptr) {
        if (length == 0) return {};
        fail(Status::invalid, "argument {} is NULL", name);
    }
    if (length == SIZE_MAX) return {text, std::strlen(text)};
    if (length > PTRDIFF_MAX)
        fail(Status::invalid, "{} of {} bytes: no memory holds that many", name, length);
    return {text, length};
}

// Returns an optional zero-terminated text: empty for null.
inline std::string_view optional_text(const char* text) {
    return text == nullptr ? std::string_view() : text;
}

// Returns the path of an open descriptor.
inline std::string descriptor_argument(int32_t descriptor) {
    if (descriptor < 0) fail(Status::invalid, "the descriptor is {}; it must not be negative", descriptor);
    return descriptor_path(descriptor);
}

inline std::span<const int32_t> ids_argument(const int32_t* ids, size_t count, const char* name) {
    if (ids == nullptr && count > 0) fail(Status::invalid, "argument {} is NULL", name);
    if (count > PTRDIFF_MAX / sizeof(int32_t))
        fail(Status::invalid, "{} of {} tokens: no memory holds that many", name, count);
    return {ids, count};
}

inline tokenizer::Specials specials_of(int32_t specials) {
    switch (specials) {
        case MINIM_SPECIALS_EXACT:
            return tokenizer::Specials::exact;
        case MINIM_SPECIALS_SAFE:
            return tokenizer::Specials::safe;
        case MINIM_SPECIALS_NONE:
            return tokenizer::Specials::none;
        default:
            fail(Status::invalid, "specials is {}; exact (0), safe (1) and none (2) are known", specials);
    }
}

}  // namespace minim::capi
