// SPDX-License-Identifier: Apache-2.0
// The page at /: a chat in one file.
#pragma once

#include <string_view>

namespace server {

extern const std::string_view k_chat_page;

}  // namespace server
