// SPDX-License-Identifier: Apache-2.0
// Where the server listens, a TCP address or a Unix socket, and who connects.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>

#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>

namespace server {

struct Listener {
    boost::asio::basic_socket_acceptor<boost::asio::generic::stream_protocol> acceptor;
    std::string address;  // "http://127.0.0.1:8080", "unix:/run/minim/server.sock"

    // The file of a Unix socket.
    std::string path = {};  // "": TCP
    dev_t device = 0;
    ino_t file = 0;
};

// Listens at the first address of `host` that takes it; port 0: any free one. `host` may be "unix:PATH": the process's umask decides
// who may connect, and the file that a dead server has left there is replaced. Throws std::runtime_error that names the address.
Listener listen_at(boost::asio::io_context& context, const std::string& host, uint16_t port);

// Removes the file of a Unix socket, unless another server has replaced it.
void remove_socket_file(const Listener& listener);

// The other side of a connection.
struct Peer {
    std::string address;    // "127.0.0.1:50312", "unix:uid=1000"
    bool is_local = false;  // a process on this machine
};

Peer peer_of(boost::asio::generic::stream_protocol::socket& socket);

// Returns the client of a request: what a proxy on this machine says, or else the peer. `forwarded`: X-Forwarded-For, "" if absent;
// its last address is the one that the nearest proxy has seen.
std::string client_of(const Peer& peer, std::string_view forwarded);

}  // namespace server
