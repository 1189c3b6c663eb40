// SPDX-License-Identifier: Apache-2.0
// The API keys of requests.
#pragma once

#include <string>
#include <vector>

#include "http/http_message.h"

namespace server {

class Keys {
  public:
    // `files`: with keys beside the fixed ones. Throws std::runtime_error that names a file that cannot be read.
    Keys(std::vector<std::string> fixed, std::vector<std::string> files);

    // Returns whether requests need no key.
    bool is_empty() const { return keys_.empty(); }
    // Returns whether a request has one of the keys, or needs none: `Authorization: Bearer KEY` or `x-api-key: KEY`.
    bool allows(const HttpRequest& request) const;

    // Reads the files again. Throws like the constructor; the keys then stay as they were.
    void read_again();

  private:
    std::vector<std::string> fixed_;
    std::vector<std::string> files_;
    std::vector<std::string> keys_;  // all
};

}  // namespace server
