// SPDX-License-Identifier: Apache-2.0
// Requests to an engine, and their expected answers.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/engine.h"
#include "support.h"
#include "support/requests.h"

namespace minim::test {

// Returns the answer of a session that runs alone.
Answer alone(const std::vector<int32_t>& ids, const engine::RequestParams& params);

void wait_until_idle(const engine::Engine& engine);

}  // namespace minim::test
