// SPDX-License-Identifier: Apache-2.0
#include "http/auth.h"

#include <string_view>
#include <utility>

#include "options/key_file.h"

namespace server {

namespace {

// Returns whether the texts are equal. Takes the same time wherever they differ.
bool is_equal(std::string_view given, std::string_view key) {
    unsigned difference = given.size() == key.size() ? 0U : 1U;
    for (size_t i = 0; i < given.size(); ++i) {
        const char other = key.empty() ? '\0' : key[i % key.size()];
        difference |= static_cast<unsigned char>(given[i]) ^ static_cast<unsigned char>(other);
    }
    return difference == 0;
}

}  // namespace

Keys::Keys(std::vector<std::string> fixed, std::vector<std::string> files)
    : fixed_(std::move(fixed)), files_(std::move(files)) {
    read_again();
}

bool Keys::allows(const HttpRequest& request) const {
    constexpr std::string_view k_bearer = "bearer ";
    std::string_view given = request.authorization;
    bool is_bearer = given.size() >= k_bearer.size();
    for (size_t i = 0; is_bearer && i < k_bearer.size(); ++i)
        is_bearer = (static_cast<unsigned char>(given[i]) | 0x20U) == static_cast<unsigned char>(k_bearer[i]);
    bool fits = keys_.empty();
    for (const std::string& key : keys_) {
        const bool fits_bearer = is_bearer && is_equal(given.substr(k_bearer.size()), key);
        fits = fits_bearer || is_equal(request.api_key, key) || fits;
    }
    return fits;
}

void Keys::read_again() {
    std::vector<std::string> keys = fixed_;
    for (const std::string& file : files_)
        for (std::string& key : program::read_key_file(file)) keys.push_back(std::move(key));
    keys_ = std::move(keys);
}

}  // namespace server
