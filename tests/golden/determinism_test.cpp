// SPDX-License-Identifier: Apache-2.0
// The same tokens give the same bits: at any thread count, in one chunk or many, in prefill or decode.
#include <cstring>

#include "models.h"
#include "support/catch.h"

using namespace minim;
using namespace minim::test;

namespace {

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

std::vector<int32_t> prompt_ids() {
    return golden_prompts().back().ids;
}  // "long"

}  // namespace

TEST_CASE("a prompt gives the same bits at 1, 2 and 3 threads") {
    const StoredModel& stored = k_stored_models[GENERATE(range(size_t{0}, std::size(k_stored_models)))];
    engine::Session one = make_session(stored_model(stored, "cpu", 1), Format::f16);
    const std::vector<float> expected = all_logits(one, prompt_ids());
    for (const int n_threads : {2, 3}) {
        engine::Session many = make_session(stored_model(stored, "cpu", n_threads), Format::f16);
        CHECK(same_bits(all_logits(many, prompt_ids()), expected));
    }
}

TEST_CASE("a prompt gives the same bits with every instruction set this machine has") {
    const StoredModel& stored = k_stored_models[GENERATE(range(size_t{0}, std::size(k_stored_models)))];
    const std::vector<int32_t> ids = golden_prompts().front().ids;
    engine::Session portable = make_session(stored_model(stored, "cpu", 2, CpuLevel::scalar), Format::f16);
    const std::vector<float> expected = all_logits(portable, ids);
    for (const CpuLevel level : cpu_levels()) {
        if (level == CpuLevel::scalar) continue;
        engine::Session session = make_session(stored_model(stored, "cpu", 2, level), Format::f16);
        INFO(stored.golden << " with " << to_string(level));
        CHECK(same_bits(all_logits(session, ids), expected));
    }
}

TEST_CASE("a prompt gives the same bits in one chunk or many") {
    const StoredModel& stored = k_stored_models[GENERATE(range(size_t{0}, std::size(k_stored_models)))];
    const auto model = stored_model(stored, "cpu");
    engine::Session whole = make_session(model, Format::f16);
    const std::vector<float> expected = all_logits(whole, prompt_ids());
    for (const int64_t n_ubatch : {1, 7, 64, 100}) {
        engine::Session chunked = make_session(model, Format::f16, n_ubatch);
        INFO(stored.golden << " in chunks of " << n_ubatch);
        CHECK(same_bits(all_logits(chunked, prompt_ids()), expected));
    }
}

TEST_CASE("a token gives the same bits in the prompt and in decode") {
    const auto model = stored_model(k_stored_models[1], "cpu");
    const std::vector<int32_t> ids = prompt_ids();
    engine::Session whole = make_session(model, Format::f16);
    const std::vector<float> expected = all_logits(whole, ids);
    const auto n_vocab = static_cast<size_t>(model->config().n_vocab);

    engine::Session stepwise = make_session(model, Format::f16);
    for (size_t i = 0; i < ids.size(); ++i) {
        std::vector<float> row(n_vocab);
        stepwise.eval({&ids[i], 1}, false, row, nullptr);
        REQUIRE(std::memcmp(row.data(), expected.data() + i * n_vocab, n_vocab * sizeof(float)) == 0);
    }
}
