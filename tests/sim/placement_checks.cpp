// SPDX-License-Identifier: Apache-2.0
#include "sim/placement_checks.h"

#include <thread>

#include "base/error.h"
#include "engine/generation.h"
#include "support/catch.h"
#include "support/load_reports.h"
#include "support/requests.h"
#include "support/tiny_model.h"

namespace minim::test {
namespace {

// The failures that are tried: each of the first k_each, then one in k_step.
constexpr int64_t k_each = k_has_thread_sanitizer ? 4 : 20;
constexpr int64_t k_step = k_has_thread_sanitizer ? 25 : 1;

int64_t fail_at_each_of_a_kind(const std::string& name, Status expected,
                               const std::function<Devices(int64_t n)>& make,
                               const std::function<void(const Devices& devices)>& use) {
    for (int64_t n = 1;; n += n < k_each ? 1 : k_step) {
        const Devices devices = make(n);
        bool failed = false;
        try {
            use(devices);
        } catch (const Error& error) {
            INFO(n << ": " << error.what());
            CHECK(error.status() == expected);
            CHECK(std::string(error.what()).find(name) != std::string::npos);
            failed = true;
        }
        CHECK(is_empty(devices));
        if (!failed) return n - 1;
    }
}

}  // namespace

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

std::vector<float> logits_on(const std::shared_ptr<const model::Model>& model,
                             const std::vector<int32_t>& ids, size_t chunk) {
    engine::Session session = make_session(model, 200);
    return all_logits(session, ids, chunk);
}

SixLayers::SixLayers() {
    TinyModel({.n_layer = 6}).write(path);
    for (int32_t i = 0; i < 90; ++i) ids.push_back(i * 5 % 50);
    expected = logits_on(model_on_cpu(path), ids, 90);
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
    // Both sequences write after the same 100 tokens, 36 of which lie in a page that they shared.
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

void check_states(const std::shared_ptr<const model::Model>& model) {
    const TemporaryFolder folder;
    const auto on_cpu = model_on_cpu();
    const Logger silent;
    for (const bool from_cpu : {false, true}) {
        const auto& from = from_cpu ? on_cpu : model;
        const auto& to = from_cpu ? model : on_cpu;
        engine::Session session = make_session(from, 200);
        all_logits(session, some_ids(101), 101);
        const std::string path = folder / "state";
        session.save(path, session.n_tokens(), nullptr);
        const auto restored = engine::Session::restore(to, kv::StateFile(path), {}, nullptr, silent);
        CHECK(last_logits(*restored) == last_logits(session));
        CHECK(all_logits(*restored, some_ids(5, 3), 5) == all_logits(session, some_ids(5, 3), 5));
    }
}

int64_t check_requests(engine::Engine& engine) {
    const auto on_cpu = model_on_cpu();
    std::vector<std::vector<int32_t>> prompts(12, some_ids(130));
    std::vector<std::shared_ptr<engine::Request>> requests;
    for (size_t i = 0; i < prompts.size(); ++i) {
        prompts[i].push_back(static_cast<int32_t>(i) + 20);
        requests.push_back(engine.submit(prompts[i], tokens_wanted(20)));
    }
    for (size_t i = 0; i < prompts.size(); ++i)
        CHECK(result_of(*requests[i]).ids == answer_on(on_cpu, prompts[i], 20));
    return requests.back()->state().n_cached;
}

void check_host_cache(const std::shared_ptr<const model::Model>& model) {
    const Logger silent;
    engine::EngineParams params = engine_params(12 * 64, 1, 64);
    params.host_cache_bytes = UINT64_MAX;
    engine::Engine engine(model, params, silent);
    engine::RequestParams wanted = tokens_wanted(4);
    wanted.generate.sampling.logprobs = true;
    std::vector<std::vector<float>> first;
    for (int32_t i = 0; i < 8; ++i) {  // four prompts, twice
        std::vector<float> logprobs;
        const auto request = engine.submit(some_ids(300, i % 4), wanted);
        take_all(*request,
                 [&](const engine::TokenEvent& event) { logprobs.push_back(event.choice.logprob); });
        CHECK(request->state().n_cached == (i < 4 ? 0 : 299));
        if (i >= 4) CHECK(logprobs == first[i - 4]);
        first.push_back(std::move(logprobs));
    }
    CHECK(engine.state().n_host_restored >= 4 * 4);
}

void check_threads(const std::shared_ptr<const model::Model>& model) {
    const std::vector<int32_t> expected = answer_on(model_on_cpu(), some_ids(66), 20);
    std::vector<std::vector<int32_t>> answers(4);
    std::vector<std::thread> threads;
    threads.reserve(answers.size());
    for (auto& answer : answers) threads.emplace_back([&] { answer = answer_on(model, some_ids(66), 20); });
    for (std::thread& thread : threads) thread.join();
    for (const auto& answer : answers) CHECK(answer == expected);
}

void check_cancelled_loads(const Devices& devices, const OpenModel& open) {
    LoadReports reports;
    const auto load = [&](const checkpoint::Progress& progress) {
        model::OpenOptions options;
        options.progress = progress;
        open(options);
    };
    load(reports.progress());
    reports.check_complete();
    CHECK(reports.total > 7'000'000);
    cancel_at_each(reports.done.size(), load, [&] { CHECK(is_empty(devices)); });
}

Failures fail_at_each(const std::string& name, const DevicesThatFail& make,
                      const std::function<void(const Devices& devices)>& use) {
    Failures failures;
    failures.allocations = fail_at_each_of_a_kind(
        name, Status::out_of_device_memory, [&](int64_t n) { return make({.failing_allocation = n}); }, use);
    failures.transfers = fail_at_each_of_a_kind(
        name, Status::device_lost, [&](int64_t n) { return make({.failing_transfer = n}); }, use);
    failures.operations = fail_at_each_of_a_kind(
        name, Status::device_lost, [&](int64_t n) { return make({.failing_operation = n}); }, use);
    return failures;
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
