// SPDX-License-Identifier: Apache-2.0
// Which names and pages a server on the loopback address answers. A page of a foreign site can reach such a server in two ways: through
// a name of its own that it lets point to 127.0.0.1 (DNS rebinding; the Host field has that name), or by sending requests
// whose answer it cannot read (the Origin field has its address).
#pragma once

#include <string>
#include <string_view>

namespace server {

class HostCheck {
  public:
    // `listens_at`: --host; `cors_origin`: --cors-origin, or "". With a key nothing is checked: a foreign page does not know it.
    HostCheck(std::string listens_at, std::string cors_origin, bool has_key);

    // `host`: the Host field, with or without a port.
    bool allows_host(std::string_view host) const;
    // Programs send no Origin; those made of pages send one of their own scheme (app://, vscode-webview://).
    bool allows_origin(std::string_view origin, std::string_view host) const;

  private:
    std::string listens_at_;
    std::string cors_origin_;
    std::string machine_;  // its name
    bool checks_ = false;
};

}  // namespace server
