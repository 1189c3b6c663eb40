// SPDX-License-Identifier: Apache-2.0
// One TCP connection: reads input, parses requests one after another, writes answers.
#pragma once

#include <array>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>

#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

#include "http/http_server.h"
#include "http/listener.h"

namespace server {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using asio::generic::stream_protocol;  // TCP or a Unix socket
using Socket = stream_protocol::socket;
using boost::system::error_code;
using Clock = std::chrono::steady_clock;

struct HttpServer::State : std::enable_shared_from_this<HttpServer::State> {
    State(EventLoop& l, const std::string& host, uint16_t port, const HttpLimits& lim);
    void accept();
    void check_deadlines();
    void stop_listening();

    EventLoop& loop;
    const HttpLimits limits;
    RequestHandler handler;
    Listener listener;
    asio::steady_timer pause;
    std::unordered_set<HttpConnection*> connections;
    bool is_draining = false;
};

class HttpConnection : public std::enable_shared_from_this<HttpConnection> {
  public:
    HttpConnection(std::shared_ptr<HttpServer::State> server, Socket socket);
    ~HttpConnection();

    void start();
    void close();
    void drain();
    bool is_late(Clock::time_point now) const;

    // For the Exchange.
    void respond(Exchange& exchange, const HttpResponse& response);
    void begin_stream(Exchange& exchange);
    void send(std::string_view events);
    void end_stream(Exchange& exchange);
    void abandon(const Exchange& exchange);

  private:
    enum class Phase {
        idle,       // between requests
        reading,    // a request has begun
        answering,  // an Exchange has it
        closing     // everything is written; further input is discarded
    };
    using Parser = http::request_parser<http::string_body>;

    void read();
    void on_read(const error_code& error, size_t count);
    void on_end_of_input();
    void parse();
    void parse_later();
    void hand_over();
    void refuse(const error_code& error);
    void write(std::string_view bytes);
    void flush();
    void finish_answer();
    void close_when_written();
    void set_deadline(std::chrono::seconds seconds) { deadline_ = Clock::now() + seconds; }
    std::string head(const Exchange* exchange, const HttpResponse& response, bool is_stream) const;

    std::shared_ptr<HttpServer::State> server_;
    Socket socket_;
    Peer peer_;
    Phase phase_ = Phase::idle;
    std::array<char, 16384> chunk_;  // of the read under way
    std::string input_;              // read and not parsed
    std::optional<Parser> parser_;
    std::weak_ptr<Exchange> exchange_;
    std::string output_;   // written after writing_
    std::string writing_;  // of the write under way
    size_t written_ = 0;   // bytes of writing_ that are written
    bool is_reading_ = false;
    bool waits_to_write_ = false;
    bool keeps_alive_ = false;
    bool is_http_1_1_ = true;
    bool is_head_ = false;
    bool has_continued_ = false;
    bool input_ended_ = false;
    Clock::time_point deadline_;
    Clock::time_point header_deadline_;  // once the header is read: the deadline of the whole request
    Clock::time_point write_deadline_;
};

}  // namespace server
