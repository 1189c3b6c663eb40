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

}  // namespace

HttpServer::State::State(EventLoop& l, const std::string& host, uint16_t port, const HttpLimits& lim)
    : loop(l),
      limits(lim),
      handler([](const std::shared_ptr<Exchange>&) {}),
      listener(listen_at(l.context(), host, port)),
      pause(l.context()) {}

void HttpServer::State::accept() {
    listener.acceptor.async_accept([self = shared_from_this()](const error_code& error, Socket socket) {
        if (!self->listener.acceptor.is_open()) return;
        if (error) {  // for example, no file descriptor is free: try again when other connections may have ended
            self->pause.expires_after(std::chrono::milliseconds(100));
            self->pause.async_wait([self](const error_code&) {
                if (self->listener.acceptor.is_open()) self->accept();
            });
            return;
        }
        error_code ignored;
        socket.non_blocking(true, ignored);
        socket.set_option(asio::ip::tcp::no_delay(true), ignored);
        // Limits the kernel's memory for a client that does not read, and lets the server notice such a client.
        socket.set_option(Socket::send_buffer_size(k_send_buffer_bytes), ignored);
        const auto connection = std::make_shared<HttpConnection>(self, std::move(socket));
        self->connections.insert(connection.get());
        connection->start();
        self->accept();
    });
}

void HttpServer::State::stop_listening() {
    if (!listener.acceptor.is_open()) return;
    error_code ignored;
    listener.acceptor.close(ignored);
    remove_socket_file(listener);
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

HttpServer::HttpServer(EventLoop& loop, const std::string& host, uint16_t port, const HttpLimits& limits)
    : state_(std::make_shared<State>(loop, host, port, limits)) {
    state_->accept();
    loop.every(std::chrono::milliseconds(250), [state = state_] { state->check_deadlines(); });
}

HttpServer::~HttpServer() {
    state_->stop_listening();
}

std::string HttpServer::address() const {
    return state_->listener.address;
}

void HttpServer::set_handler(RequestHandler handler) {
    state_->handler = std::move(handler);
}

void HttpServer::stop_listening() {
    state_->stop_listening();
}

void HttpServer::drain() {
    state_->is_draining = true;
    std::vector<std::shared_ptr<HttpConnection>> all;
    for (HttpConnection* connection : state_->connections) all.push_back(connection->shared_from_this());
    for (const auto& connection : all) connection->drain();
}

size_t HttpServer::n_connections() const {
    return state_->connections.size();
}

}  // namespace server
