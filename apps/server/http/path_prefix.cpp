// SPDX-License-Identifier: Apache-2.0
#include "http/path_prefix.h"

#include <fmt/format.h>

#include "error.h"

namespace server {

bool take_prefix(Exchange& exchange, const std::string& prefix) {
    HttpRequest& request = exchange.request;
    if (prefix.empty()) return true;
    if (request.path.starts_with(prefix + "/")) {
        request.path.erase(0, prefix.size());
        return true;
    }
    if (request.path != prefix) {
        exchange.respond(error_response(
            {404, fmt::format("there is no route {}: all are below {}/", request.path.substr(0, 200), prefix),
             "", "not_found"},
            ApiFamily::openai, request.id));
        return false;
    }
    request.path = "/";
    if (request.ends_in_slash) return true;
    HttpResponse redirect;
    redirect.status = 308;
    redirect.content_type = "text/plain; charset=utf-8";
    // Relative, since a proxy may have taken a part off the path.
    redirect.headers = {{"Location", prefix.substr(prefix.rfind('/') + 1) + "/"}};
    exchange.respond(redirect);
    return false;
}

}  // namespace server
