#include "sim/placement_checks.h"

#include "engine/generation.h"
#include "support/catch.h"
#include "support/helpers.h"

namespace minim::test {

std::vector<int32_t> answer_on(const std::shared_ptr<const model::Model>& model,
                               const std::vector<int32_t>& prompt, int64_t count) {
    engine::Session session = make_session(model, 400);
    engine::GenerateParams params;
    params.max_tokens = count;
    params.ignore_end = true;
    params.n_draft = 4;
    engine::Generation generation(session, params, prompt, nullptr);
    std::vector<int32_t> ids;
    while (const auto event = generation.next(nullptr)) ids.push_back(event->choice.token);
    return ids;
}

void check_texts(const std::shared_ptr<const model::Model>& model) {
    const auto on_cpu = model_on_cpu();
    CHECK(answer_on(model, some_ids(75), 60) == answer_on(on_cpu, some_ids(75), 60));

    engine::Session session = make_session(model, 300);
    engine::Session expected = make_session(on_cpu, 300);
    all_logits(session, some_ids(100), 100);
    all_logits(expected, some_ids(100), 100);
    const auto fork = session.fork();
    const auto expected_fork = expected.fork();
    // Both write behind the same 100 tokens, 36 of which lie in a page that they shared.
    all_logits(session, some_ids(20, 5), 20);
    all_logits(expected, some_ids(20, 5), 20);
    all_logits(*fork, some_ids(30, 9), 30);
    all_logits(*expected_fork, some_ids(30, 9), 30);
    CHECK(last_logits(session) == last_logits(expected));
    CHECK(last_logits(*fork) == last_logits(*expected_fork));
    session.truncate(90);
    expected.truncate(90);
    CHECK(all_logits(session, some_ids(10, 77), 10) == all_logits(expected, some_ids(10, 77), 10));
}

void check_cancelled_loads(const Devices& devices, const OpenModel& open) {
    int n_calls = 0;
    uint64_t last = 0;
    uint64_t total = 0;
    model::OpenOptions options;
    options.progress = [&](uint64_t done, uint64_t all) {
        CHECK(done >= last);
        last = done;
        total = all;
        ++n_calls;
        return true;
    };
    { const auto model = open(options); }
    CHECK(last == total);
    CHECK(total > 7'000'000);
    for (int at = 1; at <= n_calls; ++at) {
        int call = 0;
        options.progress = [&](uint64_t, uint64_t) { return ++call < at; };
        expect_error(Status::cancelled, "loading", [&] { open(options); });
        CHECK(is_empty(devices));
    }
}

void check_cancelled_evaluation(const std::shared_ptr<const model::Model>& model) {
    engine::Session session = make_session(model, 200);
    engine::Session expected = make_session(model_on_cpu(), 200);
    all_logits(session, some_ids(40), 40);
    all_logits(expected, some_ids(40), 40);
    CancelToken cancel;
    cancel.trigger();
    expect_error(Status::cancelled, "evaluation", [&] { session.eval(some_ids(20), false, {}, &cancel); });
    CHECK(session.n_tokens() == 40);
    CHECK(all_logits(session, some_ids(9, 4), 9) == all_logits(expected, some_ids(9, 4), 9));
}

}  // namespace minim::test
