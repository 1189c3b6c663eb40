// SPDX-License-Identifier: Apache-2.0
// The path before all routes (--prefix), as a proxy passes it on.
#pragma once

#include <string>

#include "http/http_server.h"

namespace server {

// Takes the prefix off the request's path. Returns false, after answering, if the path is not below it: with 404; or with a redirect
// if it is the prefix without the slash at the end, below which the page's relative addresses would not work.
bool take_prefix(Exchange& exchange, const std::string& prefix);

}  // namespace server
