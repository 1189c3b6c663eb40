// SPDX-License-Identifier: Apache-2.0
// Fields of a request that no route reads. One rule for all routes: a field that would change what the answer is (a constraint, a way
// of sampling, another prompt) is refused by its name, one that has no effect here is named in the log once, and so is one that
// is not known at all.
#pragma once

#include "fields.h"

namespace server {

// Call it when all fields of the request have been read, before the work on its prompt begins. Throws ApiError 400.
void check_other_fields(const Fields& request, const char* route);

}  // namespace server
