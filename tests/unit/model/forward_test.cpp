// SPDX-License-Identifier: Apache-2.0
// Compares the forward pass with the same formulas written a second time in double precision (plain_forward.h), and checks
// that the comparison finds every planted mistake.
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "kv/sequence.h"
#include "model/minimax_m2.h"
#include "plain_forward.h"
#include "runtime/forward_pass.h"
#include "runtime/step_space.h"
#include "support.h"

using namespace minim;
using namespace minim::test;

namespace {

// Longer than a page of the KV cache, so that a page border is crossed.
constexpr size_t k_long = 75;
constexpr size_t k_short = 24;

TinyShape wide_groups() {
    TinyShape shape;
    shape.n_layer = 2;
    shape.hidden = 40;
    shape.n_head = 5;
    shape.n_head_kv = 1;
    shape.head_dim = 12;
    shape.rotary_dim = 6;
    shape.n_expert = 3;
    shape.n_expert_used = 3;
    shape.expert_ff = 20;
    shape.n_vocab = 267;
    return shape;
}

TinyShape full_rotation() {
    TinyShape shape;
    shape.n_layer = 3;
    shape.hidden = 33;
    shape.n_head = 3;
    shape.n_head_kv = 3;
    shape.head_dim = 10;
    shape.rotary_dim = 10;
    shape.n_expert = 9;
    shape.n_expert_used = 1;
    shape.expert_ff = 17;
    shape.rope_theta = 10000.0;
    return shape;
}

const std::array<TinyShape, 3> k_shapes = {TinyShape{}, wide_groups(), full_rotation()};

}  // namespace

TEST_CASE("the reference backend computes the formulas, at every position") {
    const TemporaryFolder folder;
    TinyModel tiny(k_shapes[GENERATE(range(size_t{0}, size_t{3}))]);
    const auto ids = tiny.random_ids(k_long);
    const auto model = open_model(tiny, folder);
    INFO("hidden size " << tiny.shape.hidden);
    CHECK(relative_rms(logits_of(*model, ids), plain_logits(tiny, ids)) < 1e-5);
}

TEST_CASE("the CPU backend with F32 weights and F32 KV computes the formulas, at every position") {
    const TemporaryFolder folder;
    TinyModel tiny(k_shapes[GENERATE(range(size_t{0}, size_t{3}))]);
    const auto ids = tiny.random_ids(k_long);
    const auto model = open_model(tiny, folder, "cpu");
    INFO("hidden size " << tiny.shape.hidden);
    CHECK(relative_rms(logits_of(*model, ids), plain_logits(tiny, ids)) < 1e-4);
}

TEST_CASE("odd chunks of a prompt give the logits of the whole") {
    const TemporaryFolder folder;
    TinyModel tiny;
    const auto ids = tiny.random_ids(k_long);
    const auto expected = plain_logits(tiny, ids);
    for (const char* backend : {"reference", "cpu"}) {
        const auto model = open_model(tiny, folder, backend);
        for (const size_t chunk : std::vector<size_t>{1, 5, 64}) {
            INFO(backend << " in pieces of " << chunk);
            CHECK(relative_rms(logits_of(*model, ids, Format::f32, chunk), expected) < 1e-4);
        }
    }
}

TEST_CASE("the reference backend gives the same bits however a prompt is cut") {
    const std::string q8_0 = std::string(MINIM_EXAMPLE_MODELS) + "/minim-tiny-q8_0.gguf";
    const auto trained = open_model(q8_0);
    const TemporaryFolder folder;
    TinyModel tiny;
    const auto random = open_model(tiny, folder);
    for (const model::Model* model : {trained.get(), random.get()}) {
        std::vector<int32_t> ids = some_ids(53);
        for (int32_t& id : ids) id %= static_cast<int32_t>(model->config().n_vocab - 7);
        for (const Format kv : {Format::f32, Format::f16}) {
            const auto whole = logits_of(*model, ids, kv);
            for (const size_t chunk : {1, 7, 52}) {
                INFO(model->config().name << " in pieces of " << chunk);
                CHECK(same_bits(logits_of(*model, ids, kv, chunk), whole));
            }
        }
    }
}

TEST_CASE("every mistake moves the logits by more than the comparison allows") {
    TinyModel tiny;
    const auto ids = tiny.random_ids(k_short);
    const auto expected = plain_logits(tiny, ids);
    for (int m = 1; m < static_cast<int>(Mistake::count_); ++m) {
        const auto mistake = static_cast<Mistake>(m);
        const double moved = relative_rms(plain_logits(tiny, ids, mistake), expected);
        INFO(name_of(mistake) << ": " << moved);
        CHECK(moved > 1e-2);
        CHECK(moved < 10.0);
    }
}

TEST_CASE("expert_weights_scale multiplies the gates, and 0 means unset") {
    const TemporaryFolder folder;
    TinyModel tiny;
    const auto ids = tiny.random_ids(k_short);
    for (const auto& [stored, meant] : {std::pair(0.0F, 1.0), std::pair(1.0F, 1.0), std::pair(2.5F, 2.5)}) {
        GgufWriter gguf = tiny.writer();
        gguf.add("minimax-m2.expert_weights_scale", stored);
        gguf.write(folder / "scaled.gguf");
        INFO(stored);
        for (const char* backend : {"reference", "cpu"}) {
            const auto model = open_model(folder / "scaled.gguf", backend);
            CHECK(relative_rms(logits_of(*model, ids), plain_logits(tiny, ids, Mistake::none, meant)) < 1e-4);
        }
    }
}

TEST_CASE("layers may have fewer experts than others") {
    const TemporaryFolder folder;
    TinyModel tiny;
    tiny.add_experts(1, 4);
    tiny.add_experts(3, 3);
    const auto ids = tiny.random_ids(k_short);
    for (const char* backend : {"reference", "cpu"}) {
        const auto model = open_model(tiny, folder, backend);
        INFO(backend);
        CHECK(model->weights().layers[1].router.rows == 4);
        CHECK(relative_rms(logits_of(*model, ids), plain_logits(tiny, ids)) < 1e-4);
    }
}

TEST_CASE("rows that want no logits get none, and the others keep theirs") {
    const TemporaryFolder folder;
    TinyModel tiny;
    const auto ids = tiny.random_ids(9);
    const auto model = open_model(tiny, folder, "cpu");
    const auto expected = logits_of(*model, ids);
    const auto n_vocab = static_cast<size_t>(tiny.shape.n_vocab);

    const model::Config& config = model->config();
    kv::Sequence cache =
        kv::Sequence::alone({config.n_layer, config.n_head_kv, config.head_dim, Format::f32, Format::f32}, 9);
    runtime::StepSpace space(model->backend(), model::shape_of(config), 9, 9);
    std::vector<runtime::StepRow> rows;
    for (size_t i = 0; i < ids.size(); ++i) {
        rows.push_back({ids[i], {&cache.view(), static_cast<int64_t>(i)}, i == 2 || i == 7});
    }
    std::vector<float> logits(3 * n_vocab, -77.0F);
    model->forward().step(rows, space, logits.data(), nullptr);
    const auto row_of = [&](const std::vector<float>& from, size_t row) {
        return std::vector<float>(from.begin() + static_cast<ptrdiff_t>(row * n_vocab),
                                  from.begin() + static_cast<ptrdiff_t>((row + 1) * n_vocab));
    };
    CHECK(same_bits(row_of(logits, 0), row_of(expected, 2)));
    CHECK(same_bits(row_of(logits, 1), row_of(expected, 7)));
    CHECK(same_bits(row_of(logits, 2), std::vector<float>(n_vocab, -77.0F)));
}

TEST_CASE("a step of several sequences gives each the logits it has alone") {
    const TemporaryFolder folder;
    TinyModel tiny;
    const auto first = tiny.random_ids(70);
    const auto second = tiny.random_ids(13);
    const auto model = open_model(tiny, folder, "cpu");
    const model::Config& config = model->config();
    kv::Sequence cache_a = kv::Sequence::alone(
        {config.n_layer, config.n_head_kv, config.head_dim, Format::f32, Format::f32}, 70);
    kv::Sequence cache_b = kv::Sequence::alone(
        {config.n_layer, config.n_head_kv, config.head_dim, Format::f32, Format::f32}, 13);
    runtime::StepSpace space(model->backend(), model::shape_of(config), 83, 70);
    std::vector<runtime::StepRow> rows;
    for (size_t i = 0; i < first.size(); ++i) {
        const auto position = static_cast<int64_t>(i);
        rows.push_back({first[i], {&cache_a.view(), position}, i + 1 == first.size()});
        if (i < second.size())
            rows.push_back({second[i], {&cache_b.view(), position}, i + 1 == second.size()});
    }
    const auto n_vocab = static_cast<ptrdiff_t>(tiny.shape.n_vocab);
    std::vector<float> logits(static_cast<size_t>(2 * n_vocab));
    model->forward().step(rows, space, logits.data(), nullptr);
    const auto alone_a = logits_of(*model, first);
    const auto alone_b = logits_of(*model, second);
    CHECK(same_bits({logits.begin(), logits.begin() + n_vocab}, {alone_b.end() - n_vocab, alone_b.end()}));
    CHECK(same_bits({logits.begin() + n_vocab, logits.end()}, {alone_a.end() - n_vocab, alone_a.end()}));
}

TEST_CASE("a step larger than its space is an internal error") {
    const TemporaryFolder folder;
    const auto model = open_model(TinyModel(), folder);
    runtime::StepSpace space(model->backend(), model::shape_of(model->config()), 2, 4);
    const std::vector<runtime::StepRow> rows(3);
    expect_error(Status::internal, "3 rows", [&] { model->forward().step(rows, space, nullptr, nullptr); });
}

TEST_CASE("a triggered token cancels a step") {
    const TemporaryFolder folder;
    TinyModel tiny;
    const auto model = open_model(tiny, folder);
    const model::Config& config = model->config();
    kv::Sequence cache =
        kv::Sequence::alone({config.n_layer, config.n_head_kv, config.head_dim, Format::f32, Format::f32}, 1);
    runtime::StepSpace space(model->backend(), model::shape_of(config), 1, 1);
    const std::vector<runtime::StepRow> rows = {{5, {&cache.view(), 0}, false}};
    CancelToken cancel;
    cancel.trigger();
    expect_error(Status::cancelled, "evaluation",
                 [&] { model->forward().step(rows, space, nullptr, &cancel); });
}

TEST_CASE("the rotary frequencies are powers of the base over the rotary width") {
    model::Config config;
    config.rotary_dim = 64;
    config.head_dim = 128;
    config.rope_theta = 5e6;
    const std::vector<float> frequency = model::rope_frequencies(config);
    REQUIRE(frequency.size() == 32);
    CHECK(frequency[0] == 1.0F);
    CHECK(frequency[1] == Approx(std::pow(5e6, -1.0 / 32)).epsilon(1e-7));
    CHECK(frequency[31] == Approx(std::pow(5e6, -31.0 / 32)).epsilon(1e-7));
}
