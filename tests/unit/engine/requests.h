// Requests to an engine, and what they should answer.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "support.h"

namespace minim::test {

engine::EngineParams engine_params(int64_t n_kv_tokens = 4096, int64_t n_requests = 8, int64_t n_batch = 64);

engine::RequestParams tokens_wanted(int64_t max_tokens);

struct Result {
    std::vector<int32_t> ids;
    std::string text;
    engine::RequestState state;
};

// Waits for the end.
Result result_of(engine::Request& request);

// What a session answers alone.
Answer alone(const std::vector<int32_t>& ids, const engine::RequestParams& params);

void wait_until_idle(const engine::Engine& engine);

}  // namespace minim::test
