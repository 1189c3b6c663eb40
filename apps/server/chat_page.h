// SPDX-License-Identifier: Apache-2.0
// The page at /: a chat in one document (page/), and the Content-Security-Policy that it is sent with.
#pragma once

#include <string_view>

namespace server {

extern const std::string_view k_chat_page;
extern const std::string_view k_chat_page_policy;

}  // namespace server
