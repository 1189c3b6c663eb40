// SPDX-License-Identifier: Apache-2.0
// HTTP/1.1 over TCP or a Unix socket: handles limits, deadlines and clients that disconnect, and sends whole answers or streams of events.
// Everything runs on the event loop's thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "http/event_loop.h"
#include "http/http_message.h"
#include "workers.h"

namespace server {

class HttpConnection;

// One request and its answer: call respond() once, or begin_stream(), then send() any number of times, then end_stream(). After
// the client has disconnected, these functions do nothing.
class Exchange {
  public:
    Exchange(std::shared_ptr<HttpConnection> connection, HttpRequest request);
    // Closes the connection if nothing was answered.
    ~Exchange();
    Exchange(const Exchange&) = delete;
    Exchange& operator=(const Exchange&) = delete;

    HttpRequest request;
    std::function<void()> on_gone;  // the client has disconnected before the end of the answer

    void respond(const HttpResponse& response);
    void begin_stream();
    void send(std::string_view events);
    void end_stream();

    // The client has disconnected before the end of the answer.
    bool is_gone() const noexcept { return client_->is_gone; }
    std::shared_ptr<const ClientState> client() const { return client_; }
    bool is_stream() const noexcept { return streams_; }
    int status() const noexcept { return status_; }  // 0 until an answer began

  private:
    friend class HttpConnection;
    std::shared_ptr<HttpConnection> connection_;
    bool streams_ = false;
    bool ended_ = false;
    std::shared_ptr<ClientState> client_ = std::make_shared<ClientState>();
    int status_ = 0;
};

struct HttpLimits {
    uint64_t body_bytes = uint64_t{32} << 20;
    uint32_t header_bytes = 32768;
    std::chrono::seconds no_progress{10};  // a request, or an answer that the client does not read
    std::chrono::seconds whole_header{10};
    std::chrono::seconds whole_request{300};
    std::chrono::seconds idle{60};  // between requests
    std::string cors_origin;        // "": no CORS header
};

using RequestHandler = std::function<void(std::shared_ptr<Exchange>)>;

class HttpServer {
  public:
    // Listens at once; `host`: a name, an address, or "unix:PATH". Throws std::runtime_error naming the address if it cannot.
    HttpServer(EventLoop& loop, const std::string& host, uint16_t port, const HttpLimits& limits);
    ~HttpServer();
    HttpServer(const HttpServer&) = delete;
    HttpServer& operator=(const HttpServer&) = delete;

    // Returns where it listens: "http://127.0.0.1:8080", "unix:/run/minim/server.sock".
    std::string address() const;
    // Sets what answers later requests; before, connections of requests are closed. Call it on the loop's thread, or while the loop does not run.
    void set_handler(RequestHandler handler);
    // Closes connections without a running request; others, and new ones, close after their answer.
    void drain();
    // Refuses new connections.
    void stop_listening();
    size_t n_connections() const;

  private:
    friend class HttpConnection;
    struct State;
    std::shared_ptr<State> state_;
};

}  // namespace server
