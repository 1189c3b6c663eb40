// SPDX-License-Identifier: Apache-2.0
// Requests to an engine, and their answers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/engine.h"

namespace minim::test {

inline engine::EngineParams engine_params(int64_t n_kv_tokens = 4096, int64_t n_requests = 8,
                                          int64_t n_batch = 64) {
    engine::EngineParams params;
    params.n_kv_tokens = n_kv_tokens;
    params.n_requests = n_requests;
    params.n_batch = n_batch;
    return params;
}

inline engine::RequestParams tokens_wanted(int64_t max_tokens) {
    engine::RequestParams params;
    params.generate.max_tokens = max_tokens;
    params.generate.ignore_end = true;
    return params;
}

// Waits for the end of a request, and calls see(event) for each token.
template <typename See>
void take_all(engine::Request& request, const See& see) {
    engine::TokenEvent event;
    while (request.take(event, engine::Request::Clock::time_point::max()) == engine::Request::Take::token)
        see(event);
}

struct Result {
    std::vector<int32_t> ids;
    std::string text;
    engine::RequestState state;
};

// Waits for the end of a request, and returns its answer.
inline Result result_of(engine::Request& request) {
    Result result;
    take_all(request, [&](const engine::TokenEvent& event) {
        result.ids.push_back(event.choice.token);
        result.text += event.text;
    });
    result.state = request.state();
    return result;
}

}  // namespace minim::test
