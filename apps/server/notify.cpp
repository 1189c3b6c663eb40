// SPDX-License-Identifier: Apache-2.0
#include "notify.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <system_error>

#include <fmt/format.h>

#include "request_log.h"

namespace server {

void notify_manager(std::string_view state) {
    const char* name = std::getenv("NOTIFY_SOCKET");
    if (name == nullptr || *name == '\0') return;
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    const size_t length = std::strlen(name);
    const bool fits = length < sizeof address.sun_path;
    if (fits) std::memcpy(address.sun_path, name, length);
    if (*name == '@') address.sun_path[0] = '\0';  // a name outside of the file system
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + length);
    const int descriptor = fits ? socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0) : -1;
    if (!fits) errno = ENAMETOOLONG;
    const bool is_sent = descriptor >= 0 && sendto(descriptor, state.data(), state.size(), MSG_NOSIGNAL,
                                                   reinterpret_cast<const sockaddr*>(&address), size) >= 0;
    const int reason = errno;
    if (descriptor >= 0) close(descriptor);
    if (!is_sent)
        write_note(fmt::format("NOTIFY_SOCKET '{}' does not take {}: {}", name, state,
                               std::generic_category().message(reason)));
}

}  // namespace server
