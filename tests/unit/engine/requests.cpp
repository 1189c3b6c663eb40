#include "requests.h"

#include <chrono>
#include <thread>

namespace minim::test {

using engine::Engine;
using engine::EngineParams;
using engine::Request;
using engine::RequestParams;

EngineParams engine_params(int64_t n_kv_tokens, int64_t n_requests, int64_t n_batch) {
    EngineParams params;
    params.n_kv_tokens = n_kv_tokens;
    params.n_requests = n_requests;
    params.n_batch = n_batch;
    return params;
}

RequestParams tokens_wanted(int64_t max_tokens) {
    RequestParams params;
    params.generate.max_tokens = max_tokens;
    params.generate.ignore_end = true;
    return params;
}

Result result_of(Request& request) {
    Result result;
    engine::TokenEvent event;
    while (request.take(event, Request::Clock::time_point::max()) == Request::Take::token) {
        result.ids.push_back(event.choice.token);
        result.text += event.text;
    }
    result.state = request.state();
    return result;
}

Answer alone(const std::vector<int32_t>& ids, const RequestParams& params) {
    engine::Session session = make_session(4096);
    return answer(session, ids, params.generate);
}

void wait_until_idle(const Engine& engine) {
    for (int i = 0; i < 5000; ++i) {
        const engine::EngineState state = engine.state();
        if (state.n_running == 0 && state.n_waiting == 0) return;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    FAIL("the engine stays at work");
}

}  // namespace minim::test
