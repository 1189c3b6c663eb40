// SPDX-License-Identifier: Apache-2.0
#include "base/format_text.h"

namespace minim {

std::string vformat_text(fmt::string_view text, fmt::format_args args) {
    return fmt::vformat(text, args);
}

}  // namespace minim
