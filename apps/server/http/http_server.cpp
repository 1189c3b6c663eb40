// SPDX-License-Identifier: Apache-2.0
#include "http/http_server.h"

#include <stdexcept>
#include <system_error>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include "http/http_connection.h"

namespace server {

namespace {

constexpr int k_send_buffer_bytes = 256 << 10;

// Opens the listening socket at the first address of `host` that takes it.
tcp::acceptor listen_at(asio::io_context& context, const std::string& host, uint16_t port) {
    const std::string name = host + ":" + std::to_string(port);
    error_code error;
    tcp::resolver resolver(context);
    const auto addresses = resolver.resolve(host, std::to_string(port),
                                            tcp::resolver::passive | tcp::resolver::numeric_service, error);
    if (error) throw std::runtime_error("cannot listen at " + name + ": " + error.message());
    for (const auto& address : addresses) {
        tcp::acceptor acceptor(context);
        if (acceptor.open(address.endpoint().protocol(), error)) continue;
        acceptor.set_option(tcp::acceptor::reuse_address(true), error);
        if (acceptor.bind(address.endpoint(), error)) continue;
        if (acceptor.listen(4096, error)) continue;
        return acceptor;
    }
    throw std::runtime_error("cannot listen at " + name + ": " + error.message());
}

}  // namespace

HttpServer::State::State(EventLoop& l, const std::string& host, uint16_t port, const HttpLimits& lim,
                         RequestHandler h)
    : loop(l),
      limits(lim),
      handler(std::move(h)),
      acceptor(listen_at(l.context(), host, port)),
      pause(l.context()) {}

void HttpServer::State::accept() {
    acceptor.async_accept([self = shared_from_this()](const error_code& error, tcp::socket socket) {
        if (!self->acceptor.is_open()) return;
        if (error) {  // for example, no file descriptor is free: try again when other connections may have ended
            self->pause.expires_after(std::chrono::milliseconds(100));
            self->pause.async_wait([self](const error_code&) {
                if (self->acceptor.is_open()) self->accept();
            });
            return;
        }
        error_code ignored;
        socket.non_blocking(true, ignored);
        socket.set_option(tcp::no_delay(true), ignored);
        // Limits the kernel's memory for a client that does not read, and lets the server notice such a client.
        socket.set_option(tcp::socket::send_buffer_size(k_send_buffer_bytes), ignored);
        const auto connection = std::make_shared<HttpConnection>(self, std::move(socket));
        self->connections.insert(connection.get());
        connection->start();
        self->accept();
    });
}

// Closes the connections whose deadline has passed.
void HttpServer::State::check_deadlines() {
    const auto now = Clock::now();
    std::vector<std::shared_ptr<HttpConnection>> late;
    for (HttpConnection* connection : connections) {
        if (connection->is_late(now)) late.push_back(connection->shared_from_this());
    }
    for (const auto& connection : late) connection->close();
}

HttpServer::HttpServer(EventLoop& loop, const std::string& host, uint16_t port, const HttpLimits& limits,
                       RequestHandler handler)
    : state_(std::make_shared<State>(loop, host, port, limits, std::move(handler))) {
    state_->accept();
    loop.every(std::chrono::milliseconds(250), [state = state_] { state->check_deadlines(); });
}

HttpServer::~HttpServer() {
    error_code ignored;
    state_->acceptor.close(ignored);
}

uint16_t HttpServer::port() const {
    return state_->acceptor.local_endpoint().port();
}

void HttpServer::drain() {
    error_code ignored;
    state_->acceptor.close(ignored);
    state_->is_draining = true;
    std::vector<std::shared_ptr<HttpConnection>> all;
    for (HttpConnection* connection : state_->connections) all.push_back(connection->shared_from_this());
    for (const auto& connection : all) connection->drain();
}

size_t HttpServer::n_connections() const {
    return state_->connections.size();
}

}  // namespace server
