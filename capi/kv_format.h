// SPDX-License-Identifier: Apache-2.0
// Maps MINIM_KV_* to KV cache formats.
#pragma once

#include <optional>

#include "base/error.h"
#include "format/format.h"
#include "minim/minim.h"

namespace minim::capi {

// Returns the format, or nothing for MINIM_KV_AUTO. Throws invalid, naming the parameter, for an unknown value.
inline std::optional<Format> kv_format(int32_t format, const char* name) {
    switch (format) {
        case MINIM_KV_AUTO:
            return std::nullopt;
        case MINIM_KV_F16:
            return Format::f16;
        case MINIM_KV_F32:
            return Format::f32;
        case MINIM_KV_BF16:
            return Format::bf16;
        case MINIM_KV_Q8_0:
            return Format::q8_0;
        case MINIM_KV_Q4_0:
            return Format::q4_0;
        default:
            fail(Status::invalid,
                 "{} is {}; auto (0), F16 (1), F32 (2), BF16 (3), Q8_0 (4) and Q4_0 (5) are known", name,
                 format);
    }
}

}  // namespace minim::capi
