// SPDX-License-Identifier: Apache-2.0
// Deterministic arithmetic: a row's bits are the same alone and beside any other rows.
#include <span>

#include "cuda/fast/operations.h"
#include "engine/engine.h"
#include "format/blocks.h"
#include "gpu/fixture.h"
#include "gpu/models.h"
#include "gpu/support.h"
#include "support/catch.h"

namespace minim::test {
namespace {

using backend::Arithmetic;
using backend::ExpertStack;
using backend::ExpertWeights;
using backend::LinearTask;
using backend::Matrix;

// Rows first .. first + count of a batch.
struct Rows {
    int64_t first;
    int64_t count;
};

std::vector<float> part_of(const std::vector<float>& all, Rows rows, int64_t width) {
    const auto begin = all.begin() + rows.first * width;
    return {begin, begin + rows.count * width};
}

constexpr Rows k_parts_of_7[] = {{0, 1}, {6, 1}, {2, 3}, {1, 5}};
constexpr Rows k_parts_of_66[] = {{0, 1}, {65, 1}, {40, 26}};

void check_products(Fixture& f, Format format, int64_t n, std::span<const Rows> parts) {
    Random random(11);
    const int64_t cols = 512 + (traits(format).block_elems < 256 ? traits(format).block_elems : 0);
    const TestMatrix weight(format, 37, cols, random);
    Matrix on_device = f.put_packed(weight);
    on_device.scale = 0.7F;
    const float* h = f.put(random.normal(n * cols));
    const std::vector<float> before = random.normal(n * 37);
    const auto products = [&](Rows rows) {
        float* y = f.put(part_of(before, rows, 37));
        const LinearTask task = {&on_device, y, true};
        f.device->linear(*f.stream, h + rows.first * cols, rows.count, {&task, 1});
        return f.get(y, static_cast<size_t>(rows.count * 37));
    };
    const std::vector<float> all = products({0, n});
    for (const Rows& rows : parts) {
        INFO(traits(format).name << ", rows " << rows.first << " to " << rows.first + rows.count);
        CHECK(same_bits(products(rows), part_of(all, rows, 37)));
    }
}

// The tokens of a request and their probabilities; the request runs beside others or alone.
struct Answered {
    std::vector<int32_t> ids;
    std::vector<float> logprobs;
    bool operator==(const Answered&) const = default;
};

Answered answer_of(engine::Request& request) {
    Answered answer;
    engine::TokenEvent event;
    while (request.take(event, engine::Request::Clock::time_point::max()) == engine::Request::Take::token) {
        answer.ids.push_back(event.choice.token);
        answer.logprobs.push_back(event.choice.logprob);
    }
    return answer;
}

}  // namespace

TEST_CASE("gpu deterministic: products of packed and of plain weights") {
    if (!has_devices(1)) return;
    Fixture f(Arithmetic::deterministic);
    for_each_block(AllBlocks{}, [&](auto block) {
        constexpr Format format = decltype(block)::format;
        if (cuda::fast::has_panels(format) || cuda::fast::is_float(format))
            check_products(f, format, 7, k_parts_of_7);
    });
    f.stream = f.device->reserve(
        {.n_rows = 66, .n_context = 64, .hidden = 1024, .n_head = 2, .n_head_kv = 1, .head_dim = 128});
    for (const Format format : {Format::iq2_s, Format::q4_k, Format::bf16, Format::fp8_e4m3_b128})
        check_products(f, format, 66, k_parts_of_66);
}

TEST_CASE("gpu deterministic: experts, and the choice of them") {
    if (!has_devices(1)) return;
    Fixture f(Arithmetic::deterministic);
    struct Case {
        Format gate, up, down;
    };
    // Gate and up in one kernel, in two, and without panels.
    constexpr Case k_cases[] = {{Format::iq4_xs, Format::iq4_xs, Format::q8_0},
                                {Format::q4_k, Format::q5_k, Format::iq3_s},
                                {Format::bf16, Format::bf16, Format::f16},
                                {Format::fp8_e4m3_b128, Format::fp8_e4m3_b128, Format::fp8_e4m3_b128}};
    constexpr int64_t k_n = 24;
    constexpr int64_t k_width = 256;
    constexpr int64_t k_expert = 9;
    for (const Case& c : k_cases) {
        Random random(5);
        const auto stack = [&](Format format) {
            ExpertStack s;
            for (int64_t e = 0; e < k_expert; ++e)
                add_expert(s, f.put_packed(TestMatrix(format, k_width, k_width, random)), 0.9F);
            return s;
        };
        const ExpertWeights weights = f.with_table({stack(c.gate), stack(c.up), stack(c.down)});
        const Matrix router = f.put(TestMatrix(Format::f32, k_expert, k_width, random));
        const std::vector<float> before = random.normal(k_n * k_width);
        const float* h = f.put(random.normal(k_n * k_width, 0.1F));
        // Returns the experts' sum for some rows, followed by their gates.
        const auto added = [&](Rows rows) {
            float* y = f.put(part_of(before, rows, k_width));
            int32_t* ids = f.put(std::vector<int32_t>(static_cast<size_t>(3 * rows.count)));
            float* gates = f.put(std::vector<float>(static_cast<size_t>(3 * rows.count)));
            const float* from = h + rows.first * k_width;
            f.device->route(*f.stream, from, rows.count, router, {}, 3, ids, gates);
            f.device->experts(*f.stream, from, rows.count, ids, gates, 3, weights, y, true);
            std::vector<float> out = f.get(y, static_cast<size_t>(rows.count * k_width));
            const std::vector<float> shares = f.get(gates, static_cast<size_t>(3 * rows.count));
            out.insert(out.end(), shares.begin(), shares.end());
            return out;
        };
        const std::vector<float> all = added({0, k_n});
        for (const Rows& rows : {Rows{0, 1}, Rows{23, 1}, Rows{3, 4}, Rows{5, 12}}) {
            INFO(traits(c.gate).name << ", rows " << rows.first << " to " << rows.first + rows.count);
            std::vector<float> expected = part_of(all, rows, k_width);
            const std::vector<float> gates = {all.begin() + k_n * k_width, all.end()};
            const std::vector<float> shares = part_of(gates, rows, 3);
            expected.insert(expected.end(), shares.begin(), shares.end());
            CHECK(same_bits(added(rows), expected));
        }
    }
}

TEST_CASE("gpu deterministic: a text's logits do not depend on the pieces it comes in") {
    if (!has_devices(1)) return;
    for (const std::string& path : k_models) {
        const auto model = open_on(path, {0}, Arithmetic::deterministic);
        for (const Format kv : {Format::f16, Format::q8_0}) {
            INFO(path << ", KV cache in " << traits(kv).name);
            const bool is_long = path == k_models[0] && kv == Format::f16;
            const int64_t n = is_long ? 66 : 6;  // 66: more than a page
            const std::vector<float> whole = logits(model, kv, n, static_cast<size_t>(n));
            CHECK(same_bits(logits(model, kv, n, is_long ? 33 : 4), whole));
            CHECK(same_bits(logits(model, kv, n, 1, is_long ? 60 : 0), whole));
        }
    }
}

TEST_CASE("gpu deterministic: a request's tokens and probabilities do not depend on batch composition") {
    if (!has_devices(1)) return;
    const Logger silent;
    const auto model = open_on(k_models[0], {0}, Arithmetic::deterministic);
    engine::EngineParams params;
    params.n_kv_tokens = 1024;
    params.n_batch = 40;
    params.n_requests = 8;
    params.n_prompt_rows = 6;
    const auto submit = [&](engine::Engine& engine, size_t i) {
        engine::RequestParams wanted;
        wanted.generate.max_tokens = 4 + static_cast<int64_t>(i);
        wanted.generate.ignore_end = true;
        wanted.generate.sampling.logprobs = true;
        return engine.submit(some_ids(5 + 9 * i, static_cast<int32_t>(101 * i)), wanted);
    };
    constexpr size_t k_requests = 6;
    std::vector<Answered> together;
    {
        engine::Engine engine(model, params, silent);
        std::vector<std::shared_ptr<engine::Request>> requests;
        for (size_t i = 0; i < k_requests; ++i) requests.push_back(submit(engine, i));
        for (const auto& request : requests) together.push_back(answer_of(*request));
    }
    for (size_t i = 0; i < k_requests; ++i) {
        INFO("request " << i);
        engine::Engine engine(model, params, silent);
        const Answered alone = answer_of(*submit(engine, i));
        CHECK(alone.ids.size() == 4 + i);
        CHECK(alone == together[i]);
    }
}

}  // namespace minim::test
