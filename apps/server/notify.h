// SPDX-License-Identifier: Apache-2.0
// Tells a service manager (systemd, Type=notify) how far the server is.
#pragma once

#include <string_view>

namespace server {

// Sends a state, "READY=1" or "STOPPING=1", to the socket that NOTIFY_SOCKET names. Does nothing without one; a failure is written to
// the log.
void notify_manager(std::string_view state);

}  // namespace server
