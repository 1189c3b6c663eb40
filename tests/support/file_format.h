// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "format/expand.h"
#include "format/format.h"

namespace minim {

// Returns the file format that is unpacked to this one; `format` itself if there is none.
inline Format file_format(Format format) {
    for (const FormatTraits& file : all_formats())
        if (unpacked_format(file.format) == format) return file.format;
    return format;
}

}  // namespace minim
