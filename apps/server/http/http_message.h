// SPDX-License-Identifier: Apache-2.0
// An HTTP request and its answer, as the routes use them.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace server {

struct HttpRequest {
    std::string id;  // of this exchange, sent as x-request-id
    std::string method;
    std::string path;  // without the query, and without a slash at the end
    bool ends_in_slash = false;
    std::string query;          // without the question mark
    std::string authorization;  // header fields; "" if absent
    std::string api_key;        // x-api-key
    std::string host;           // without the port; "" if absent
    std::string origin;         // of the page that sent it; "" if absent
    std::string encoding;       // Content-Encoding
    std::string asked_headers;  // Access-Control-Request-Headers of a preflight
    std::string client;         // "127.0.0.1:50312", "unix:uid=1000", or what a proxy on this machine says
    bool asks_private = false;  // a preflight asks whether pages may reach this network
    std::string body;
};

struct HttpResponse {
    int status = 200;
    std::string content_type = "application/json";
    std::string body;
    std::vector<std::pair<std::string, std::string>> headers;  // more header fields
};

}  // namespace server
