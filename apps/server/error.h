// SPDX-License-Identifier: Apache-2.0
// The errors of refused requests, in the formats of both APIs.
#pragma once

#include <string>

#include "http/http_message.h"

namespace server {

// Thrown by functions that read a request.
struct ApiError {
    int status = 400;
    std::string message;
    std::string param;             // the field with the error; "" if it is not a single field
    std::string code;              // "" for none
    std::string detail_code = {};  // Anthropic's error.details.error_code; "" for none
};

// The API whose error bodies a route uses.
enum class ApiFamily { openai, anthropic };

std::string openai_error_body(const ApiError& error);

HttpResponse error_response(const ApiError& error, ApiFamily family, const std::string& request_id);

}  // namespace server
