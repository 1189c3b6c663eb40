// SPDX-License-Identifier: Apache-2.0
// Prompt states in host memory: the answers are those without them, and prompts are not computed again.
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/memory_info.h"
#include "engine/engine.h"
#include "engine/open_sizes.h"
#include "requests.h"
#include "support.h"

using namespace minim;
using namespace minim::test;
using engine::Engine;
using engine::EngineParams;
using engine::Request;
using engine::RequestParams;

namespace {

const Logger k_silent;
constexpr int64_t k_page = backend::k_kv_page_tokens;

struct Turns {
    std::vector<std::vector<int32_t>> ids;  // of each answer
    std::vector<std::vector<float>> logprobs;
    int64_t n_prompt = 0;
    int64_t n_computed = 0;  // tokens of prompts that were not cached
};

// Holds conversations in turn: each round, every conversation asks something new after all that it has said so far.
Turns converse(Engine& engine, int64_t n_conversations, int64_t n_first, int64_t n_rounds) {
    std::vector<std::vector<int32_t>> conversations;
    for (int64_t i = 0; i < n_conversations; ++i)
        conversations.push_back(some_ids(n_first, static_cast<int32_t>(i) * 7));
    RequestParams params = tokens_wanted(3);
    params.generate.sampling.logprobs = true;
    Turns turns;
    for (int64_t round = 0; round < n_rounds; ++round) {
        for (int64_t i = 0; i < n_conversations; ++i) {
            std::vector<int32_t>& text = conversations[i];
            const auto request = engine.submit(text, params);
            std::vector<float> logprobs;
            std::vector<int32_t> ids;
            take_all(*request, [&](const engine::TokenEvent& event) {
                ids.push_back(event.choice.token);
                logprobs.push_back(event.choice.logprob);
            });
            const engine::RequestState state = request->state();
            CHECK(state.n_prompt_done == state.n_prompt);
            turns.n_prompt += state.n_prompt;
            turns.n_computed += state.n_prompt - state.n_cached;
            text.insert(text.end(), ids.begin(), ids.end());
            const auto question = some_ids(5, static_cast<int32_t>(100 * round + i));
            text.insert(text.end(), question.begin(), question.end());
            turns.ids.push_back(std::move(ids));
            turns.logprobs.push_back(std::move(logprobs));
        }
    }
    return turns;
}

}  // namespace

TEST_CASE("conversations in turn that do not fit the KV cache are computed once, with the same logits") {
    constexpr int64_t k_conversations = 8;
    constexpr int64_t k_first = 200;
    constexpr int64_t k_rounds = 5;
    const int64_t n_tokens = 2 * 5 * k_page;  // pages for two of them
    EngineParams params = engine_params(n_tokens, 1, 64);
    Engine without(bundled_model(), params, k_silent);
    const Turns expected = converse(without, k_conversations, k_first, k_rounds);
    CHECK(without.state().host_cache_bytes == 0);
    CHECK(expected.n_computed == expected.n_prompt);

    params.host_cache_bytes = UINT64_MAX;
    Engine with(bundled_model(), params, k_silent);
    const Turns turns = converse(with, k_conversations, k_first, k_rounds);
    CHECK(turns.ids == expected.ids);
    CHECK(turns.logprobs == expected.logprobs);
    CHECK(turns.n_prompt == expected.n_prompt);
    // The first prompts, and the last token of the answer and the question of each later one.
    CHECK(turns.n_computed == k_conversations * (k_first + (k_rounds - 1) * 6));
    wait_until_idle(with);
    const engine::EngineState state = with.state();
    CHECK(state.host_cache_bytes > 0);
    CHECK(state.n_host_pages >= (k_conversations - 3) * 4);
    CHECK(state.n_host_restored >= (k_rounds - 1) * k_conversations * 4);
    CHECK(state.n_host_stored >= state.n_host_restored);
    CHECK(state.n_pages_held == state.n_pages_cached);
}

TEST_CASE("a small limit of host memory is kept, and answers are the same") {
    EngineParams params = engine_params(10 * k_page, 1, 64);
    params.host_cache_bytes = UINT64_MAX;
    Engine large(bundled_model(), params, k_silent);
    const Turns expected = converse(large, 5, 200, 3);
    wait_until_idle(large);
    const uint64_t page_bytes =
        large.state().host_cache_bytes / static_cast<uint64_t>(large.state().n_host_pages);

    params.host_cache_bytes = page_bytes * 7;
    Engine small(bundled_model(), params, k_silent);
    const Turns turns = converse(small, 5, 200, 3);
    CHECK(turns.ids == expected.ids);
    CHECK(turns.logprobs == expected.logprobs);
    CHECK(turns.n_computed > expected.n_computed);
    wait_until_idle(small);
    CHECK(small.state().n_host_pages <= 7);
    CHECK(small.state().host_cache_bytes <= params.host_cache_bytes);
}

TEST_CASE("requests at once, cancelled at any time, leave a cache of states from which others go on") {
    EngineParams params = engine_params(12 * k_page, 4, 32);
    params.host_cache_bytes = UINT64_MAX;
    Engine engine(bundled_model(), params, k_silent);
    const RequestParams wanted = tokens_wanted(4);
    std::vector<std::vector<int32_t>> prompts;
    std::vector<std::vector<int32_t>> expected;
    for (int32_t i = 0; i < 6; ++i) {
        prompts.push_back(some_ids(60 + static_cast<size_t>(i) * 37, i * 11));
        expected.push_back(alone(prompts.back(), wanted).ids);
    }
    std::mt19937 random(3);
    for (int round = 0; round < 12; ++round) {
        std::vector<std::shared_ptr<Request>> requests;
        std::vector<size_t> which;
        for (int i = 0; i < 4; ++i) {
            which.push_back(random() % prompts.size());
            requests.push_back(engine.submit(prompts[which.back()], wanted));
        }
        requests[random() % 4]->cancel();
        for (size_t i = 0; i < requests.size(); ++i) {
            const Result result = result_of(*requests[i]);
            if (result.state.finish == engine::Finish::stopped) continue;
            INFO("round " << round << ", prompt " << which[i]);
            CHECK(result.ids == expected[which[i]]);
        }
    }
    wait_until_idle(engine);
    CHECK(engine.state().n_pages_held == engine.state().n_pages_cached);
    CHECK(engine.state().n_host_restored > 0);
}

TEST_CASE("prompt states leave memory to mapped weights and to others") {
    uint64_t mapped = 0;
    for (const auto& weights : bundled_model()->weight_bytes())
        mapped += weights.is_mapped ? weights.total : 0;
    const kv::HostLimit limit = engine::host_limit(*bundled_model(), 1 << 20);
    CHECK(limit.bytes == 1 << 20);
    const uint64_t available = available_memory_bytes();
    CHECK(limit.least_free >= mapped + available / 20);
    CHECK(limit.least_free <= mapped + available / 8);
}

TEST_CASE("the log says why prompt states have no host memory") {
    std::vector<std::string> lines;
    Logger log;
    log.set([](void* data, int32_t,
               const char* line) { static_cast<std::vector<std::string>*>(data)->emplace_back(line); },
            &lines, LogLevel::warning);
    EngineParams params = engine_params();
    params.host_cache_bytes = 100;
    { const Engine engine(bundled_model(), params, log); }
    REQUIRE(lines.size() == 1);
    CHECK(lines[0].find("100 bytes are less than a page") != std::string::npos);
    params.keep_prefixes = false;
    { const Engine engine(bundled_model(), params, log); }
    REQUIRE(lines.size() == 2);
    CHECK(lines[1].find("keeps no prefixes") != std::string::npos);
}

TEST_CASE("one conversation is saved, erased and restored") {
    const TemporaryFolder folder;
    const std::string path = folder / "prefix";
    const auto ids = some_ids(300);
    Engine engine(bundled_model(), engine_params(), k_silent);
    const Result once = result_of(*engine.submit(ids, tokens_wanted(5)));
    CHECK(engine.save_prefix(ids, path, nullptr) == 300);
    CHECK(engine.erase_prefix(ids) == 0);  // the text goes on
    auto whole = ids;
    whole.insert(whole.end(), once.ids.begin(), once.ids.end());
    CHECK(engine.erase_prefix(whole) == 304);
    CHECK(result_of(*engine.submit(ids, tokens_wanted(1))).state.n_cached == 0);
    CHECK(engine.erase_prefix(ids) == 300);
    CHECK(engine.load_prefix(path, nullptr) == ids);
    const Result again = result_of(*engine.submit(ids, tokens_wanted(5)));
    CHECK(again.state.n_cached == 299);
    CHECK(again.ids == once.ids);
}
