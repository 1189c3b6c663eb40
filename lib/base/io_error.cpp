// SPDX-License-Identifier: Apache-2.0
#include "base/io_error.h"

#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace minim {

void fail_io(std::string_view path, std::string_view action, int code) {
    ErrorFacts facts;
    facts.os_code = code;
    // A missing path is the caller's mistake, not a bad file: the error has no reason.
    const bool missing = code == ENOENT || code == ENOTDIR;
    throw Error(missing ? Status::not_found : Status::io, missing ? Reason::none : Reason::io,
                format_text("{}: cannot {}: {}", path, action, std::strerror(code)), facts);
}

}  // namespace minim
