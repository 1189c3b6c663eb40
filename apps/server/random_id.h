// SPDX-License-Identifier: Apache-2.0
// Identifiers that are hard to predict.
#pragma once

#include <cstddef>
#include <string>

namespace server {

// Returns `count` hexadecimal digits from the system's random source.
std::string random_hex(size_t count);

}  // namespace server
