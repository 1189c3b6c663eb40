// SPDX-License-Identifier: Apache-2.0
// The API keys of a request.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "http/http_message.h"

namespace server {

// Returns whether the texts are equal. Takes the same time wherever they differ.
inline bool is_equal(std::string_view given, std::string_view key) {
    unsigned difference = given.size() == key.size() ? 0U : 1U;
    for (size_t i = 0; i < given.size(); ++i) {
        const char other = key.empty() ? '\0' : key[i % key.size()];
        difference |= static_cast<unsigned char>(given[i]) ^ static_cast<unsigned char>(other);
    }
    return difference == 0;
}

// Returns whether a request has one of the keys, or no key is needed: `Authorization: Bearer KEY` or `x-api-key: KEY`.
inline bool has_key(const HttpRequest& request, const std::vector<std::string>& keys) {
    constexpr std::string_view k_bearer = "bearer ";
    std::string_view given = request.authorization;
    bool is_bearer = given.size() >= k_bearer.size();
    for (size_t i = 0; is_bearer && i < k_bearer.size(); ++i)
        is_bearer = (static_cast<unsigned char>(given[i]) | 0x20U) == static_cast<unsigned char>(k_bearer[i]);
    bool fits = keys.empty();
    for (const std::string& key : keys) {
        const bool fits_bearer = is_bearer && is_equal(given.substr(k_bearer.size()), key);
        fits = fits_bearer || is_equal(request.api_key, key) || fits;
    }
    return fits;
}

}  // namespace server
