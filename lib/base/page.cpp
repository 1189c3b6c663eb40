// SPDX-License-Identifier: Apache-2.0
#include "base/page.h"

#include <unistd.h>

namespace minim {

uint64_t system_page_bytes() noexcept {
    static const auto k_bytes = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
    return k_bytes;
}

}  // namespace minim
