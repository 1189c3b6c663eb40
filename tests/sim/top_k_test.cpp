// SPDX-License-Identifier: Apache-2.0
// Tests that texts chosen from the top-k that a device reports are those chosen from whole rows, and that the rows stay
// on the device.
#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "constraint/regex.h"
#include "engine/engine.h"
#include "engine/generation.h"
#include "sim/devices.h"
#include "support/catch.h"
#include "support/helpers.h"
#include "support/requests.h"
#include "support/tiny_model.h"
#include "support/written.h"

namespace minim::test {
namespace {

using engine::GenerateParams;

Written written_on(const std::shared_ptr<const model::Model>& model, const GenerateParams& params,
                   const std::vector<int32_t>& prompt) {
    engine::Session session = make_session(model, 200);
    engine::Generation generation(session, params, prompt, nullptr);
    return rest_of(generation);
}

// Writes a tiny model in which every second row of the output matrix equals the row before, so that each logit occurs
// twice.
std::string write_model_with_ties(const TemporaryFolder& folder) {
    TinyModel model;
    std::vector<float> values = model.values("output.weight");
    const auto hidden = static_cast<size_t>(model.shape.hidden);
    for (size_t row = 1; row < static_cast<size_t>(model.shape.n_vocab); row += 2)
        std::copy_n(values.begin() + static_cast<std::ptrdiff_t>((row - 1) * hidden), hidden,
                    values.begin() + static_cast<std::ptrdiff_t>(row * hidden));
    model.put("output.weight", {model.shape.n_vocab, model.shape.hidden}, values);
    model.write(folder / "ties.gguf");
    return folder / "ties.gguf";
}

GenerateParams sampled(float temperature, uint64_t seed) {
    GenerateParams params;
    params.sampling.temperature = temperature;
    params.sampling.seed = seed;
    params.has_seed = true;
    params.max_tokens = 24;
    params.ignore_end = true;
    return params;
}

// Returns every setting of sampling, by itself and with others.
std::vector<GenerateParams> all_settings(int64_t n_vocab) {
    std::vector<GenerateParams> all;
    const auto add_changed = [&](float temperature, const auto& change) {
        GenerateParams params = sampled(temperature, all.size());
        change(params);
        all.push_back(params);
    };
    for (const float temperature : {0.0F, 0.7F, 1.3F}) {
        add_changed(temperature, [](GenerateParams&) {});
        add_changed(temperature, [](GenerateParams& p) { p.sampling.top_k = 40; });
        add_changed(temperature, [](GenerateParams& p) { p.sampling.top_k = 260; });
        add_changed(temperature, [](GenerateParams& p) { p.sampling.top_p = 0.95F; });
        add_changed(temperature, [](GenerateParams& p) { p.sampling.min_p = 0.05F; });
        add_changed(temperature, [](GenerateParams& p) {
            p.sampling.top_k = 40;
            p.sampling.top_p = 0.9F;
            p.sampling.min_p = 0.01F;
        });
        add_changed(temperature, [](GenerateParams& p) {
            p.sampling.order = sampling::Order::filters_first;
            p.sampling.top_p = 0.8F;
        });
        add_changed(temperature, [](GenerateParams& p) { p.sampling.repetition_penalty = 1.5F; });
        add_changed(temperature, [](GenerateParams& p) {
            p.sampling.presence_penalty = 1.0F;
            p.sampling.frequency_penalty = 0.5F;
            p.sampling.top_k = 20;
        });
        add_changed(temperature, [&](GenerateParams& p) {
            const auto last = static_cast<int32_t>(n_vocab - 1);
            p.sampling.logit_bias = {{7, 9.0F}, {8, -std::numeric_limits<float>::infinity()}, {last, 100.0F}};
        });
        add_changed(temperature, [](GenerateParams& p) {
            p.sampling.logprobs = true;
            p.sampling.n_top_logprobs = 20;
        });
        add_changed(temperature, [](GenerateParams& p) {
            p.ignore_end = false;
            p.min_tokens = 10;
        });
        add_changed(temperature, [](GenerateParams& p) {
            p.n_draft = 6;
            p.sampling.repetition_penalty = 0.6F;  // repeats itself, so that there is something to draft
        });
    }
    return all;
}

std::shared_ptr<const constraint::Constraint> letters(const std::shared_ptr<const model::Model>& model) {
    const std::shared_ptr<const tokenizer::Tokenizer> tokenizer(model, &model->text().tokenizer());
    return std::make_shared<const constraint::Constraint>(constraint::grammar_of_regex("[a-z ]{1,20}"),
                                                          tokenizer, model->text().token_trie(),
                                                          constraint::ConstraintStart{});
}

uint64_t bytes_to_host(const Devices& devices) {
    return devices.back()->counts().bytes_to_host;
}

}  // namespace

TEST_CASE("top-k gives the texts of whole rows, with every setting, on one device and on two") {
    const TemporaryFolder folder;
    const std::string tied = write_model_with_ties(folder);
    for (const std::string& path : {bundled_model_path(), tied}) {
        const Devices devices = make_devices(1);
        const auto model = model_on(devices, {}, path);
        const auto split = model_on(make_devices(2), {}, path);
        const auto plain = model_on(make_devices(1, {.makes_top_k = false}), {}, path);
        const std::vector<int32_t> prompt = {17, 42, 99, 42, 17};
        int n = 0;
        for (const GenerateParams& params : all_settings(model->config().n_vocab)) {
            INFO(path << ", settings " << n++);
            const Written expected = written_on(plain, params, prompt);
            CHECK(written_on(model, params, prompt) == expected);
            CHECK(written_on(split, params, prompt) == expected);
        }
        CHECK(devices[0]->counts().top_k_lists > 600);
    }
}

TEST_CASE("top-k: structured output is that of whole rows") {
    const auto model = model_on(make_devices(1));
    const auto plain = model_on(make_devices(1, {.makes_top_k = false}));
    for (const float temperature : {0.0F, 1.2F}) {
        for (const int32_t top_k : {0, 3}) {
            GenerateParams params = sampled(temperature, 4);
            params.sampling.top_k = top_k;
            params.constraint = letters(plain);
            const Written expected = written_on(plain, params, some_ids(9));
            params.constraint = letters(model);
            CHECK(written_on(model, params, some_ids(9)) == expected);
        }
    }
}

TEST_CASE("top-k: a token takes some bytes from the device instead of a row") {
    const Devices devices = make_devices(1);
    const auto model = model_on(devices);
    const auto row_bytes = static_cast<uint64_t>(model->config().n_vocab) * sizeof(float);
    const auto bytes_a_token = [&](const GenerateParams& params) {
        engine::Session session = make_session(model, 200);
        const uint64_t before = bytes_to_host(devices);
        engine::Generation generation(session, params, some_ids(40), nullptr);
        static_cast<void>(rest_of(generation));
        return (bytes_to_host(devices) - before) / 24;
    };
    constexpr uint64_t k_facts = 24;
    CHECK(bytes_a_token(sampled(0.0F, 1)) == k_facts + 8);
    GenerateParams params = sampled(0.8F, 1);
    params.sampling.top_k = 40;
    CHECK(bytes_a_token(params) == k_facts + 40 * 8);
    params.sampling.top_p = 0.9F;
    CHECK(bytes_a_token(params) == k_facts + 40 * 8);
    // More candidates than a device reports.
    params.sampling.top_k = k_max_candidates + 1;
    CHECK(bytes_a_token(params) == row_bytes);
}

TEST_CASE("top-k: the logits of a session are there whenever they are asked for") {
    const auto model = model_on(make_devices(1));
    const auto plain = model_on(make_devices(1, {.makes_top_k = false}));
    const TemporaryFolder folder;
    std::vector<std::vector<float>> seen[2];
    size_t which = 0;
    for (const auto& one : {model, plain}) {
        auto& logits = seen[which++];
        engine::Session session = make_session(one, 200);
        session.eval(some_ids(50), false, {}, nullptr);
        const auto fork = session.fork();  // of logits that are on the device
        logits.push_back(last_logits(*fork));
        logits.push_back(last_logits(session));
        GenerateParams params = sampled(0.9F, 3);
        for (const int64_t n_draft : {0, 8}) {
            params.n_draft = n_draft;
            engine::Generation generation(session, params, some_ids(3, 5), nullptr);
            for (int i = 0; i < 10; ++i) static_cast<void>(generation.next(nullptr));
            const auto middle = session.fork();
            static_cast<void>(rest_of(generation));
            logits.push_back(last_logits(*middle));
            logits.push_back(last_logits(session));
            session.eval(some_ids(2), false, {}, nullptr);
            session.save(folder / "state", session.n_tokens(), nullptr);
            const Logger silent;
            const auto restored =
                engine::Session::restore(one, kv::StateFile(folder / "state"), {}, nullptr, silent);
            logits.push_back(last_logits(*restored));
            engine::Generation rest(*restored, params, {}, nullptr);
            for (const int32_t token : rest_of(rest).tokens) logits.push_back({static_cast<float>(token)});
            logits.push_back(last_logits(session));
        }
        // A text that the model ends leaves its last logits on the device.
        params = GenerateParams();
        engine::Generation whole(session, params, some_ids(5, 9), nullptr);
        static_cast<void>(rest_of(whole));
        logits.push_back(last_logits(session));
        // An evaluation that is cancelled leaves the logits as they were.
        session.eval(some_ids(4), false, {}, nullptr);
        CancelToken cancelled;
        cancelled.trigger();
        expect_error(Status::cancelled, "", [&] { session.eval(some_ids(4), false, {}, &cancelled); });
        logits.push_back(last_logits(session));
    }
    CHECK(seen[0].size() == seen[1].size());
    CHECK(seen[0] == seen[1]);
}

TEST_CASE("top-k: a batch of 64 is answered as it is from whole rows") {
    const TemporaryFolder folder;
    const std::string tied = write_model_with_ties(folder);
    for (const std::string& path : {bundled_model_path(), tied}) {
        const Devices devices = make_devices(1);
        const auto on_device = model_on(devices, {}, path);
        const auto plain = model_on(make_devices(1, {.makes_top_k = false}), {}, path);
        const std::vector<GenerateParams> settings = all_settings(plain->config().n_vocab);
        const Logger silent;
        std::vector<Written> written[2];
        size_t which = 0;
        for (const auto& model : {on_device, plain}) {
            engine::Engine engine(model, engine_params(64 * 64, 64, 128), silent);
            std::vector<std::shared_ptr<engine::Request>> requests;
            for (size_t i = 0; i < 64; ++i) {
                engine::RequestParams params;
                params.generate = settings[i % settings.size()];
                std::vector<int32_t> prompt = {17, 42, static_cast<int32_t>(i)};
                requests.push_back(engine.submit(std::move(prompt), std::move(params)));
            }
            for (const auto& request : requests) {
                Written& one = written[which].emplace_back();
                take_all(*request, [&](const engine::TokenEvent& event) { add(one, event); });
            }
            ++which;
        }
        for (size_t i = 0; i < 64; ++i) {
            INFO(path << ", request " << i);
            CHECK(written[0][i] == written[1][i]);
        }
        CHECK(devices[0]->counts().top_k_lists > 700);
    }
}

TEST_CASE("top-k: log-probabilities of prompts come from whole rows, beside answers from the top-k") {
    const Devices devices = make_devices(1);
    const Logger silent;
    std::vector<Written> written[2];
    std::vector<int32_t> ranks[2];
    size_t which = 0;
    for (const auto& model : {model_on(devices), model_on(make_devices(1, {.makes_top_k = false}))}) {
        engine::Engine engine(model, engine_params(64 * 64, 8, 40), silent);
        std::vector<std::shared_ptr<engine::Request>> requests;
        for (int32_t i = 0; i < 6; ++i) {
            engine::RequestParams params;
            params.generate = sampled(0.8F, 1);
            params.generate.max_tokens = 60;
            if (i % 2 == 1) params.generate.n_prompt_logprobs = i;
            requests.push_back(engine.submit(some_ids(40 + 20 * i, i), params));
        }
        for (const auto& request : requests) {
            Written& one = written[which].emplace_back();
            take_all(*request, [&](const engine::TokenEvent& event) {
                add(one, event);
                ranks[which].push_back(event.prompt_rank);
            });
        }
        ++which;
    }
    CHECK(written[0] == written[1]);
    CHECK(ranks[0] == ranks[1]);
    CHECK(std::ranges::count_if(ranks[0], [](int32_t rank) { return rank > 0; }) == 59 + 99 + 139);
    CHECK(devices[0]->counts().top_k_lists > 0);
}

TEST_CASE("top-k: 64 greedy answers at once copy no rows") {
    const Devices devices = make_devices(1);
    const auto model = model_on(devices);
    const Logger silent;
    engine::Engine engine(model, engine_params(64 * 64, 64, 128), silent);
    const uint64_t before = bytes_to_host(devices);
    std::vector<std::shared_ptr<engine::Request>> requests;
    for (int32_t i = 0; i < 64; ++i) {
        engine::RequestParams one;
        one.generate = sampled(0.0F, 0);
        requests.push_back(engine.submit({17, i}, one));
    }
    int64_t n_tokens = 0;
    for (const auto& request : requests) take_all(*request, [&](const engine::TokenEvent&) { ++n_tokens; });
    CHECK(n_tokens == 64 * 24);
    CHECK(bytes_to_host(devices) - before == static_cast<uint64_t>(n_tokens) * 32);
}

TEST_CASE("top-k: a device that is lost while they are fetched is an error, not a token") {
    for (int64_t failing = 60; failing < 140; failing += 7) {
        const auto model = model_on(make_devices(1, {.failing_operation = failing}));
        engine::Session session = make_session(model, 100);
        expect_error(Status::device_lost, "sim:0", [&] {
            GenerateParams params = sampled(0.9F, 1);
            engine::Generation generation(session, params, some_ids(8), nullptr);
            static_cast<void>(rest_of(generation));
        });
    }
}

}  // namespace minim::test
