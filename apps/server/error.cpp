// SPDX-License-Identifier: Apache-2.0
#include "error.h"

#include "json.h"

namespace server {

namespace {

const char* type_of(int status, ApiFamily family) {
    const bool is_anthropic = family == ApiFamily::anthropic;
    switch (status) {
        case 401:
            return "authentication_error";
        case 404:
        case 405:
            return "not_found_error";
        case 413:
            return is_anthropic ? "request_too_large" : "invalid_request_error";
        case 429:
            return "rate_limit_error";
        case 501:
            return is_anthropic ? "invalid_request_error" : "not_supported_error";
        case 503:
            return is_anthropic ? "overloaded_error" : "service_unavailable_error";
        default:
            return "invalid_request_error";
    }
}

Json text_or_null(const std::string& text) {
    return text.empty() ? Json() : Json(text);
}

std::string anthropic_error_body(const ApiError& error, const std::string& request_id) {
    Json body = {
        {"type", "error"},
        {"error", {{"type", type_of(error.status, ApiFamily::anthropic)}, {"message", error.message}}},
        {"request_id", request_id}};
    if (!error.detail_code.empty()) body["error"]["details"] = {{"error_code", error.detail_code}};
    return to_text(body);
}

}  // namespace

std::string openai_error_body(const ApiError& error) {
    const Json body = {{"error",
                        {{"message", error.message},
                         {"type", type_of(error.status, ApiFamily::openai)},
                         {"param", text_or_null(error.param)},
                         {"code", text_or_null(error.code)}}}};
    return to_text(body);
}

HttpResponse error_response(const ApiError& error, ApiFamily family, const std::string& request_id) {
    HttpResponse response;
    response.status = error.status;
    response.body =
        family == ApiFamily::anthropic ? anthropic_error_body(error, request_id) : openai_error_body(error);
    if (error.status == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
    return response;
}

}  // namespace server
