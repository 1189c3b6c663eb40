// SPDX-License-Identifier: Apache-2.0
// Tests that a step ends as a whole once any of its threads was told so, however often and by whom the question is asked.
#include <atomic>
#include <chrono>
#include <thread>

#include "base/cancel.h"
#include "base/error.h"
#include "sim/devices.h"
#include "sim/expert_caches.h"
#include "sim/placement_checks.h"
#include "support/catch.h"
#include "support/helpers.h"
#include "support/requests.h"

namespace minim::test {
namespace {

using runtime::ExpertMoves;
using runtime::StreamRule;

// Cancels the evaluation of n tokens at its first question, at its second, and so on; the token says yes only that once.
// Returns the number of questions of an evaluation.
int check_each_question(const std::shared_ptr<const model::Model>& model, size_t n) {
    engine::Session session = make_session(model, 200);
    engine::Session expected = make_session(model_on_cpu(), 200);
    all_logits(session, some_ids(20), 20);
    all_logits(expected, some_ids(20), 20);
    all_logits(expected, some_ids(n, 4), n);
    for (int yes = 1; yes < 200; ++yes) {
        std::atomic<int> n_asked = 0;
        CancelToken cancel([&] { return ++n_asked == yes; });
        try {
            session.eval(some_ids(n, 4), false, {}, &cancel);
            CHECK(n_asked < yes);
            CHECK((last_logits(session) == last_logits(expected)));
            return n_asked;
        } catch (const Error& error) {
            CHECK(error.status() == Status::cancelled);
            CHECK(session.n_tokens() == 20);
        }
    }
    FAIL("the questions do not end");
    return 0;
}

// Submits urgent requests at many moments of the steps of others, and checks that all answers are those of the CPU.
void check_urgent_requests(const std::shared_ptr<const model::Model>& model, int n_rounds) {
    const auto on_cpu = model_on_cpu();
    const std::vector<int32_t> long_prompt = some_ids(200);
    const std::vector<int32_t> short_prompt = some_ids(9, 4);
    const std::vector<int32_t> of_long = answer_on(on_cpu, long_prompt, 4);
    const std::vector<int32_t> of_short = answer_on(on_cpu, short_prompt, 12);
    engine::EngineParams params = engine_params(2048);
    params.keep_prefixes = false;
    const Logger silent;
    engine::Engine engine(model, params, silent);
    for (int round = 0; round < n_rounds; ++round) {
        CAPTURE(round);
        const auto first = engine.submit(short_prompt, tokens_wanted(12));
        const auto second = engine.submit(long_prompt, tokens_wanted(4));
        std::this_thread::sleep_for(std::chrono::microseconds(700 * (round % 13)));
        engine::RequestParams more = tokens_wanted(12);
        more.priority = 1 + round % 3;
        const auto urgent = engine.submit(short_prompt, more, 1 + round % 2);
        for (const auto& request : urgent) CHECK(result_of(*request).ids == of_short);
        CHECK(result_of(*first).ids == of_short);
        CHECK(result_of(*second).ids == of_long);
    }
}

}  // namespace

TEST_CASE("a step ends if the token says so once, to whichever thread and at whichever question") {
    const Devices devices = make_devices(1, {.exchange_seconds = 0.0002});
    const StreamRule copies_all = {0.0, 2};
    for (const uint64_t bytes : {uint64_t{1}, uint64_t{1} << 20}) {
        for (const size_t n : {size_t{1}, size_t{30}}) {
            CAPTURE(bytes, n);
            CHECK(check_each_question(with_cache(devices, bytes, ExpertMoves::fixed), n) > 4);
        }
    }
    const auto model =
        with_cache(devices, 1 << 19, ExpertMoves::fixed, bundled_model_path(), INT32_MAX, copies_all);
    CHECK(check_each_question(model, 30) > 4);
    CHECK(check_each_question(model_placed(machine_of({devices[0]}), {.n_host_experts = 2}), 30) > 4);
}

TEST_CASE("more urgent requests beside a cache of experts: every answer is that of a session alone") {
    const int n_rounds = k_has_thread_sanitizer ? 6 : 26;
    check_urgent_requests(with_cache(make_devices(1), 1 << 20, ExpertMoves::reproducible), n_rounds);
    check_urgent_requests(with_cache(make_devices(2), 1, ExpertMoves::fixed), n_rounds);
    const Devices slow = make_devices(1, {.exchange_seconds = 0.0003});
    const StreamRule copies = {4.0, 2};
    check_urgent_requests(
        with_cache(slow, 1 << 19, ExpertMoves::eager, bundled_model_path(), INT32_MAX, copies), n_rounds);
}

}  // namespace minim::test
