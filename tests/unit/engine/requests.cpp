// SPDX-License-Identifier: Apache-2.0
#include "requests.h"

#include <chrono>
#include <thread>

namespace minim::test {

using engine::Engine;
using engine::RequestParams;

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
