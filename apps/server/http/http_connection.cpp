// SPDX-License-Identifier: Apache-2.0
#include "http/http_connection.h"

#include <sys/socket.h>

#include <utility>

#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/string.hpp>
#include <fmt/format.h>

#include "error.h"
#include "random_id.h"

namespace server {

namespace {

constexpr size_t k_max_pipelined = 65536;  // bytes read ahead while an answer is made
constexpr std::chrono::seconds k_linger{2};
constexpr std::chrono::seconds k_half_closed{2};  // for an answer to a client that has ended its side

std::string text_of(boost::beast::string_view view) {
    return {view.data(), view.size()};
}

// Returns the path of a target: without scheme and host (proxies send them), query and fragment, without the empty parts that
// a client makes that joins "http://host/" and "/v1", and without a slash at the end.
std::string path_of(std::string_view target) {
    for (const std::string_view scheme : {"http://", "https://"}) {
        if (!target.starts_with(scheme)) continue;
        const size_t slash = target.find('/', scheme.size());
        target = slash == std::string_view::npos ? "/" : target.substr(slash);
    }
    std::string path;
    for (const char c : target.substr(0, target.find_first_of("?#")))
        if (c != '/' || !path.ends_with('/')) path += c;
    if (path.size() > 1 && path.ends_with('/')) path.pop_back();
    return path;
}

std::string query_of(const std::string& target) {
    const std::string whole = target.substr(0, target.find('#'));
    const size_t mark = whole.find('?');
    return mark == std::string::npos ? "" : whole.substr(mark + 1);
}

int status_of(const error_code& error) {
    if (error == http::error::body_limit) return 413;
    if (error == http::error::header_limit || error == http::error::buffer_overflow) return 431;
    return 400;
}

}  // namespace

HttpConnection::HttpConnection(std::shared_ptr<HttpServer::State> server, Socket socket)
    : server_(std::move(server)), socket_(std::move(socket)), chunk_{} {}

HttpConnection::~HttpConnection() {
    server_->connections.erase(this);
}

void HttpConnection::start() {
    peer_ = peer_of(socket_);
    set_deadline(server_->limits.whole_header);
    read();
}

bool HttpConnection::is_late(Clock::time_point now) const {
    if (waits_to_write_ && now >= write_deadline_) return true;
    if (phase_ == Phase::answering) return input_ended_ && now >= deadline_;
    return now >= deadline_ || (phase_ == Phase::reading && now >= header_deadline_);
}

void HttpConnection::close() {
    const auto self = shared_from_this();
    error_code ignored;
    socket_.close(ignored);
    if (const auto exchange = exchange_.lock()) {
        exchange_.reset();
        exchange->client_->is_gone = true;
        if (exchange->on_gone) std::exchange(exchange->on_gone, nullptr)();
    }
    server_->connections.erase(this);
}

void HttpConnection::drain() {
    keeps_alive_ = false;
    if (phase_ == Phase::idle || phase_ == Phase::reading) close();
}

void HttpConnection::read() {
    if (is_reading_ || input_ended_ || !socket_.is_open()) return;
    if (phase_ == Phase::answering && input_.size() >= k_max_pipelined) return;
    is_reading_ = true;
    socket_.async_read_some(
        asio::buffer(chunk_),
        [self = shared_from_this()](const error_code& error, size_t count) { self->on_read(error, count); });
}

void HttpConnection::on_read(const error_code& error, size_t count) {
    is_reading_ = false;
    if (!socket_.is_open()) return;
    if (error == asio::error::eof) return on_end_of_input();
    if (error) return close();
    if (phase_ == Phase::closing) return read();
    input_.append(chunk_.data(), count);
    if (phase_ != Phase::answering) parse();
    read();
}

// Handles a client that has closed its side: it may be gone, or it may wait for the answer. Writing to a stream shows which. A
// whole answer has a short time left.
void HttpConnection::on_end_of_input() {
    input_ended_ = true;
    switch (phase_) {
        case Phase::idle:
        case Phase::closing:
            return close();
        case Phase::reading: {
            if (parser_ && parser_->is_header_done()) return refuse(http::error::partial_message);
            return refuse(http::error::end_of_stream);
        }
        case Phase::answering: {
            keeps_alive_ = false;
            const auto exchange = exchange_.lock();
            if (exchange) exchange->client_->has_ended = true;
            if (exchange && exchange->is_stream()) {
                deadline_ = Clock::time_point::max();
                exchange->send(": ping\n\n");
            } else {
                set_deadline(k_half_closed);
            }
        }
    }
}

void HttpConnection::parse() {
    if (input_.empty()) return;
    if (phase_ == Phase::idle) {
        phase_ = Phase::reading;
        parser_.emplace();
        parser_->eager(true);
        parser_->header_limit(server_->limits.header_bytes);
        parser_->body_limit(server_->limits.body_bytes);
        has_continued_ = false;
        header_deadline_ = Clock::now() + server_->limits.whole_header;
    }
    const bool had_header = parser_->is_header_done();
    error_code error;
    const size_t n_parsed = parser_->put(asio::const_buffer(input_.data(), input_.size()), error);
    input_.erase(0, n_parsed);
    if (error == http::error::need_more) error = {};
    if (error) return refuse(error);
    set_deadline(server_->limits.no_progress);
    if (!parser_->is_header_done()) return;
    if (!had_header) {
        header_deadline_ = Clock::now() + server_->limits.whole_request;
        const auto length = parser_->content_length();
        // The parser would only refuse this at the first byte of the body.
        if (length && *length > server_->limits.body_bytes) return refuse(http::error::body_limit);
    }
    if (parser_->is_done()) return hand_over();
    if (!has_continued_ && boost::beast::iequals(parser_->get()[http::field::expect], "100-continue")) {
        has_continued_ = true;
        write("HTTP/1.1 100 Continue\r\n\r\n");
    }
    if (!input_.empty() && n_parsed > 0) parse();
}

void HttpConnection::parse_later() {
    asio::post(socket_.get_executor(), [self = shared_from_this()] {
        if (self->phase_ != Phase::idle || !self->socket_.is_open()) return;
        self->parse();
        self->read();
    });
}

void HttpConnection::hand_over() {
    auto message = parser_->release();
    parser_.reset();
    phase_ = Phase::answering;
    keeps_alive_ = message.keep_alive() && !server_->is_draining && !input_ended_;
    is_http_1_1_ = message.version() >= 11;
    is_head_ = message.method() == http::verb::head;
    HttpRequest request;
    request.id = "req_" + random_hex(24);
    request.method = text_of(message.method_string());
    const std::string target = text_of(message.target());
    request.path = path_of(target);
    request.ends_in_slash = target.substr(0, target.find_first_of("?#")).ends_with('/');
    request.query = query_of(target);
    request.authorization = text_of(message[http::field::authorization]);
    request.api_key = text_of(message["x-api-key"]);
    request.host = text_of(message[http::field::host]);
    request.origin = text_of(message[http::field::origin]);
    request.encoding = text_of(message[http::field::content_encoding]);
    request.asked_headers = text_of(message[http::field::access_control_request_headers]);
    request.asks_private = message["Access-Control-Request-Private-Network"] == "true";
    request.client = client_of(peer_, text_of(message["X-Forwarded-For"]));
    request.body = std::move(message.body());
    const auto exchange = std::make_shared<Exchange>(shared_from_this(), std::move(request));
    exchange_ = exchange;
    if (is_head_) exchange->request.method = "GET";
    server_->handler(exchange);
}

// Answers bytes that are not a request, and closes.
void HttpConnection::refuse(const error_code& error) {
    keeps_alive_ = false;
    is_head_ = false;
    parser_.reset();
    input_.clear();
    if (error == http::error::end_of_stream) return close();
    const int status = status_of(error);
    const std::string what =
        status == 413 ? "the body is larger than " + std::to_string(server_->limits.body_bytes) + " bytes"
        : status == 431
            ? "the header is larger than " + std::to_string(server_->limits.header_bytes) + " bytes"
            : "not a valid HTTP request: " + error.message();
    HttpResponse response;
    response.status = status;
    response.body = openai_error_body({status, what, "", ""});
    write(head(nullptr, response, false) + response.body);
    close_when_written();
}

std::string HttpConnection::head(const Exchange* exchange, const HttpResponse& response,
                                 bool is_stream) const {
    std::string head = "HTTP/1.1 " + std::to_string(response.status) + " " +
                       text_of(http::obsolete_reason(static_cast<http::status>(response.status))) +
                       "\r\nServer: minim\r\n";
    const std::string id = exchange != nullptr ? exchange->request.id : "req_" + random_hex(24);
    head.append("x-request-id: ").append(id).append("\r\nrequest-id: ").append(id).append("\r\n");
    if (response.status != 204) head += "Content-Type: " + response.content_type + "\r\n";
    if (is_stream) {
        head += "Cache-Control: no-cache\r\nX-Accel-Buffering: no\r\n";
        if (is_http_1_1_) head += "Transfer-Encoding: chunked\r\n";
    } else if (response.status != 204) {
        head += "Content-Length: " + std::to_string(response.body.size()) + "\r\n";
    }
    if (!server_->limits.cors_origin.empty())
        head += "Access-Control-Allow-Origin: " + server_->limits.cors_origin +
                "\r\nAccess-Control-Expose-Headers: x-request-id, request-id, retry-after\r\n";
    for (const auto& [name, value] : response.headers)
        head.append(name).append(": ").append(value).append("\r\n");
    head += keeps_alive_ ? "Connection: keep-alive\r\n\r\n" : "Connection: close\r\n\r\n";
    return head;
}

void HttpConnection::respond(Exchange& exchange, const HttpResponse& response) {
    if (exchange_.lock().get() != &exchange) return;
    if (server_->is_draining) keeps_alive_ = false;
    std::string bytes = head(&exchange, response, false);
    if (!is_head_) bytes += response.body;
    finish_answer();
    write(bytes);
    if (!keeps_alive_) close_when_written();
}

void HttpConnection::begin_stream(Exchange& exchange) {
    if (exchange_.lock().get() != &exchange) return;
    if (!is_http_1_1_ || server_->is_draining) keeps_alive_ = false;
    HttpResponse response;
    response.content_type = "text/event-stream";
    write(head(&exchange, response, true));
}

void HttpConnection::send(std::string_view events) {
    if (events.empty()) return;
    if (!is_http_1_1_) return write(events);
    std::string framed;
    framed.reserve(events.size() + 16);
    char size[24];
    const int length = std::snprintf(size, sizeof(size), "%zx\r\n", events.size());
    framed.append(size, length).append(events).append("\r\n");
    write(framed);
}

void HttpConnection::end_stream(Exchange& exchange) {
    if (exchange_.lock().get() != &exchange) return;
    if (server_->is_draining) keeps_alive_ = false;
    finish_answer();
    if (is_http_1_1_) write("0\r\n\r\n");
    if (!keeps_alive_) close_when_written();
}

void HttpConnection::finish_answer() {
    exchange_.reset();
    phase_ = Phase::idle;
    set_deadline(server_->limits.idle);
    if (keeps_alive_) parse_later();
}

// Closes the connection of an exchange that ends without an answer.
void HttpConnection::abandon(const Exchange& exchange) {
    if (phase_ != Phase::answering || !socket_.is_open()) return;
    if (!exchange_.expired() && exchange_.lock().get() != &exchange) return;
    close();
}

void HttpConnection::write(std::string_view bytes) {
    if (!socket_.is_open()) return;
    if (!waits_to_write_) {  // usually the system takes all bytes at once
        const ssize_t sent =
            ::send(socket_.native_handle(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent >= 0) bytes.remove_prefix(sent);
        if (sent < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) {
            asio::post(socket_.get_executor(), [self = shared_from_this()] { self->close(); });
            return;
        }
    }
    output_.append(bytes);
    if (!waits_to_write_ && !output_.empty()) flush();
}

// Writes the rest of the output as the client takes it.
void HttpConnection::flush() {
    if (written_ == writing_.size()) {
        writing_ = std::exchange(output_, {});
        written_ = 0;
    }
    waits_to_write_ = true;
    write_deadline_ = Clock::now() + server_->limits.no_progress;
    socket_.async_write_some(asio::buffer(writing_.data() + written_, writing_.size() - written_),
                             [self = shared_from_this()](const error_code& error, size_t count) {
                                 self->waits_to_write_ = false;
                                 if (!self->socket_.is_open()) return;
                                 if (error) return self->close();
                                 self->written_ += count;
                                 if (self->written_ < self->writing_.size() || !self->output_.empty())
                                     return self->flush();
                                 if (self->phase_ == Phase::closing) self->close_when_written();
                             });
}

// Ends our side, then waits a moment for the client to end its side: closing at once could discard the answer before it is read.
void HttpConnection::close_when_written() {
    phase_ = Phase::closing;
    set_deadline(k_linger);
    input_.clear();
    if (waits_to_write_) {
        deadline_ = Clock::time_point::max();  // the write's own deadline counts
        return;
    }
    if (input_ended_) return close();
    error_code ignored;
    socket_.shutdown(Socket::shutdown_send, ignored);
    read();
}

// ---------------------------------------------------------------------------------------------- Exchange

Exchange::Exchange(std::shared_ptr<HttpConnection> connection, HttpRequest r)
    : request(std::move(r)), connection_(std::move(connection)) {}

Exchange::~Exchange() {
    if (!ended_) connection_->abandon(*this);
}

void Exchange::respond(const HttpResponse& response) {
    if (ended_) return;
    ended_ = true;
    on_gone = nullptr;
    status_ = response.status;
    connection_->respond(*this, response);
}

void Exchange::begin_stream() {
    streams_ = true;
    status_ = 200;
    connection_->begin_stream(*this);
}

void Exchange::send(std::string_view events) {
    if (!ended_) connection_->send(events);
}

void Exchange::end_stream() {
    if (ended_) return;
    ended_ = true;
    on_gone = nullptr;
    connection_->end_stream(*this);
}

}  // namespace server
