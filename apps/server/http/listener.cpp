// SPDX-License-Identifier: Apache-2.0
#include "http/listener.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <system_error>
#include <utility>

#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <fmt/format.h>

#include "options/options.h"

namespace server {

namespace {

namespace net = boost::asio;
using net::ip::tcp;
using Generic = net::generic::stream_protocol;

constexpr int k_backlog = 4096;

[[noreturn]] void cannot_listen(const std::string& where, const std::string& why) {
    throw std::runtime_error(fmt::format("cannot listen at {}: {}", where, why));
}

std::string last_error() {
    return std::generic_category().message(errno);
}

// Returns the address of a socket's side as an address of TCP; none for a Unix socket.
std::optional<tcp::endpoint> tcp_endpoint_of(const Generic::endpoint& generic) {
    const int family = generic.protocol().family();
    if (family != AF_INET && family != AF_INET6) return std::nullopt;
    tcp::endpoint endpoint(family == AF_INET ? tcp::v4() : tcp::v6(), 0);
    std::memcpy(endpoint.data(), generic.data(), std::min(endpoint.size(), generic.size()));
    return endpoint;
}

Listener listen_at_address(net::io_context& context, const std::string& host, uint16_t port) {
    const std::string name = fmt::format("{}:{}", host, port);
    boost::system::error_code error;
    tcp::resolver resolver(context);
    const auto addresses = resolver.resolve(host, std::to_string(port),
                                            tcp::resolver::passive | tcp::resolver::numeric_service, error);
    if (error) cannot_listen(name, error.message());
    for (const auto& address : addresses) {
        const Generic::endpoint endpoint = address.endpoint();
        net::basic_socket_acceptor<Generic> acceptor(context);
        if (acceptor.open(endpoint.protocol(), error)) continue;
        acceptor.set_option(net::socket_base::reuse_address(true), error);
        if (acceptor.bind(endpoint, error)) continue;
        if (acceptor.listen(k_backlog, error)) continue;
        const std::optional<tcp::endpoint> bound = tcp_endpoint_of(acceptor.local_endpoint());
        return {std::move(acceptor), fmt::format("http://{}:{}", host, bound ? bound->port() : port)};
    }
    cannot_listen(name, error.message());
}

sockaddr_un unix_address_of(const std::string& path, const std::string& where) {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    constexpr size_t k_longest = sizeof address.sun_path - 1;
    if (path.size() > k_longest)
        cannot_listen(where, fmt::format("the path has {} bytes, {} at most", path.size(), k_longest));
    std::memcpy(address.sun_path, path.data(), path.size());
    return address;
}

// Removes the file at the path if it is the socket of a server that has ended. Throws std::runtime_error if it is something else.
void remove_stale_socket(const std::string& path, const std::string& where) {
    struct stat file = {};
    if (lstat(path.c_str(), &file) != 0) {
        if (errno == ENOENT) return;
        cannot_listen(where, last_error());
    }
    if (!S_ISSOCK(file.st_mode)) cannot_listen(where, "the file exists and is not a socket");
    const sockaddr_un address = unix_address_of(path, where);
    const int probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (probe < 0) cannot_listen(where, last_error());
    const bool connects = connect(probe, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
    const int reason = errno;
    close(probe);
    if (connects || reason == EAGAIN) cannot_listen(where, "another process listens there");
    if (reason != ECONNREFUSED) cannot_listen(where, std::generic_category().message(reason));
    if (unlink(path.c_str()) != 0 && errno != ENOENT)
        cannot_listen(where, fmt::format("the socket of an ended server stays: {}", last_error()));
}

Listener listen_at_socket(net::io_context& context, const std::string& path) {
    const std::string where = fmt::format("{}{}", program::k_unix_host, path);
    const sockaddr_un address = unix_address_of(path, where);
    remove_stale_socket(path, where);
    const Generic::endpoint endpoint(&address, sizeof address);
    net::basic_socket_acceptor<Generic> acceptor(context);
    boost::system::error_code error;
    acceptor.open(endpoint.protocol(), error);
    if (!error) acceptor.bind(endpoint, error);
    if (!error) acceptor.listen(k_backlog, error);
    struct stat file = {};
    if (error || lstat(path.c_str(), &file) != 0)
        cannot_listen(where, error ? error.message() : last_error());
    return {std::move(acceptor), where, path, file.st_dev, file.st_ino};
}

}  // namespace

Listener listen_at(net::io_context& context, const std::string& host, uint16_t port) {
    if (host.starts_with(program::k_unix_host))
        return listen_at_socket(context, host.substr(program::k_unix_host.size()));
    return listen_at_address(context, host, port);
}

void remove_socket_file(const Listener& listener) {
    struct stat file = {};
    if (listener.path.empty() || lstat(listener.path.c_str(), &file) != 0) return;
    if (file.st_dev == listener.device && file.st_ino == listener.file) unlink(listener.path.c_str());
}

Peer peer_of(Generic::socket& socket) {
    boost::system::error_code error;
    const auto peer = socket.remote_endpoint(error);
    if (error) return {};
    if (const std::optional<tcp::endpoint> endpoint = tcp_endpoint_of(peer)) {
        const net::ip::address address = endpoint->address();
        const bool is_mapped = address.is_v6() && address.to_v6().is_v4_mapped();
        const bool is_loopback =
            is_mapped ? net::ip::make_address_v4(net::ip::v4_mapped, address.to_v6()).is_loopback()
                      : address.is_loopback();
        return {fmt::format("{}:{}", address.to_string(), endpoint->port()), is_loopback};
    }
    ucred process = {};
    socklen_t size = sizeof process;
    const bool is_known = getsockopt(socket.native_handle(), SOL_SOCKET, SO_PEERCRED, &process, &size) == 0;
    return {is_known ? fmt::format("unix:uid={}", process.uid) : "unix", true};
}

std::string client_of(const Peer& peer, std::string_view forwarded) {
    if (!peer.is_local || forwarded.empty()) return peer.address;
    std::string_view last = forwarded.substr(forwarded.rfind(',') + 1);  // npos + 1 is 0
    while (last.starts_with(' ')) last.remove_prefix(1);
    while (last.ends_with(' ')) last.remove_suffix(1);
    boost::system::error_code error;
    const net::ip::address address = net::ip::make_address(std::string(last), error);
    return error ? peer.address : address.to_string();
}

}  // namespace server
