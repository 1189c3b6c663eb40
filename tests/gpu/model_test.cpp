// SPDX-License-Identifier: Apache-2.0
// Whole models on the CUDA backend.
#include "model/model.h"

#include <algorithm>
#include <cmath>

#include "base/buffer.h"
#include "cuda/cuda_backend.h"
#include "engine/session.h"
#include "gpu/launch_paths.h"
#include "gpu/models.h"
#include "gpu/support.h"
#include "placement/backends.h"
#include "runtime/expert_pool.h"
#include "runtime/placement.h"
#include "support/catch.h"
#include "support/helpers.h"
#include "support/last_logits.h"

namespace minim::test {
namespace {

using backend::Arithmetic;

// Opens a model with all layers on the first device, their experts on the CPU, and a cache of them of `cache_bytes`.
std::shared_ptr<const model::Model> open_with_host_experts(
    const std::string& path, Arithmetic arithmetic, uint64_t cache_bytes = 0,
    runtime::ExpertMoves moves = runtime::ExpertMoves::fixed, const runtime::StreamRule& stream = {}) {
    const Logger silent;
    const auto split = [&](const model::Config& config, std::span<const weights::WeightSpec>) {
        const auto threads = std::make_shared<const ThreadPool>(1);
        const auto host = placement::make_backend(arithmetic == Arithmetic::fast ? "cpu" : "reference",
                                                  threads, active_cpu_level());
        const auto n_layer = static_cast<size_t>(config.n_layer);
        return std::vector<runtime::Stage>{
            {cuda::make_cuda_backend(0, arithmetic), config.n_layer, {n_layer, host}, cache_bytes, stream}};
    };
    model::OpenOptions options;
    options.expert_moves = moves;
    return std::make_shared<const model::Model>(path, split, options, silent);
}

// Returns the bytes of a cache with room for all experts of the model.
uint64_t expert_bytes(const model::Model& model) {
    return runtime::bytes_of_all(model.expert_pools()[0]->layers());
}

// Returns the root of the mean squared difference, in proportion to the spread of the expected ones.
double difference(const std::vector<float>& expected, const std::vector<float>& actual) {
    double sum = 0.0;
    double squares = 0.0;
    double errors = 0.0;
    for (size_t i = 0; i < expected.size(); ++i) {
        const auto e = static_cast<double>(expected[i]);
        const double d = static_cast<double>(actual[i]) - e;
        sum += e;
        squares += e * e;
        errors += d * d;
    }
    const auto n = static_cast<double>(expected.size());
    return std::sqrt(errors / n) / std::sqrt(squares / n - sum / n * (sum / n));
}

// The first tokens of a text, and how many of them a session is given at a time. Chunks of few tokens take longer than
// chunks of many, and run the same kernels each time.
struct Reading {
    int64_t count;
    size_t chunk;
};

// Returns the difference of the model's logits for the first tokens from the expected ones, which may be for more
// tokens.
double difference(const std::vector<float>& expected, const std::shared_ptr<const model::Model>& model,
                  Format kv, Reading reading) {
    const std::vector<float> actual = logits(model, kv, reading.count, reading.chunk);
    return difference({expected.begin(), expected.begin() + static_cast<std::ptrdiff_t>(actual.size())},
                      actual);
}

// Returns the differences of the rows' logits from the expected ones, in ascending order.
std::vector<double> row_differences(const std::vector<float>& expected,
                                    const std::shared_ptr<const model::Model>& model, Reading reading) {
    const std::vector<float> actual = logits(model, Format::f16, reading.count, reading.chunk);
    const auto width = std::ssize(actual) / reading.count;
    std::vector<double> all;
    for (int64_t at = 0; at < std::ssize(actual); at += width)
        all.push_back(difference({expected.begin() + at, expected.begin() + at + width},
                                 {actual.begin() + at, actual.begin() + at + width}));
    std::ranges::sort(all);
    return all;
}

}  // namespace

TEST_CASE("gpu: models give the reference's logits, with every KV format") {
    if (!has_devices(1)) return;
    for (const std::string& path : k_models) {
        const auto expected_model = open_on(path, {}, Arithmetic::exact);
        const auto model = open_on(path, {0}, Arithmetic::exact);
        for (const Format kv : {Format::f32, Format::f16, Format::bf16, Format::q8_0, Format::q4_0}) {
            INFO(path << ", KV cache in " << traits(kv).name);
            const std::vector<float> expected = logits(expected_model, kv, 90, 90);
            // If the last bits of a key differ, another code may be nearest. The coarser the format, the larger the
            // difference.
            const double most = kv == Format::f32 ? 1e-5 : kv == Format::q4_0 ? 2e-2 : 5e-3;
            for (const size_t chunk : {90, 7})
                CHECK(difference(expected, logits(model, kv, 90, chunk)) < most);
        }
    }
}

TEST_CASE("gpu: models in fast arithmetic are as near the reference as they are on the CPU") {
    if (!has_devices(1)) return;
    for (const std::string& path : k_models) {
        const auto exact_model = open_on(path, {}, Arithmetic::exact);
        const auto cpu_model = open_on(path, {}, Arithmetic::fast);
        const auto model = open_on(path, {0}, Arithmetic::fast);
        for (const Format kv : {Format::f16, Format::q8_0}) {
            INFO(path << ", KV cache in " << traits(kv).name);
            const std::vector<float> exact = logits(exact_model, kv, 24, 24);
            const double most = std::max(2.5 * difference(exact, logits(cpu_model, kv, 24, 24)), 5e-3);
            // A prompt at once, in chunks of which some are grouped by expert and some are not, and token by token.
            const std::vector<Reading> readings = kv == Format::f16
                                                      ? std::vector<Reading>{{24, 24}, {21, 7}, {8, 1}}
                                                      : std::vector<Reading>{{24, 3}};
            for (const Reading reading : readings) CHECK(difference(exact, model, kv, reading) < most);
        }
    }
}

TEST_CASE("gpu: MiniMax-M3 in exact and in fast arithmetic is near the reference") {
    if (!has_devices(1)) return;
    const std::string path = MINIM_TEST_DATA "/models/minim-tiny-m3";
    const std::vector<float> exact = logits(open_on(path, {}, Arithmetic::exact), Format::f16, 40, 40);
    CHECK(difference(exact, open_on(path, {0}, Arithmetic::exact), Format::f16, {40, 40}) < 1e-3);
    for (const auto& model :
         {open_on(path, {0}, Arithmetic::fast), open_with_host_experts(path, Arithmetic::fast)}) {
        // One row has inputs in float. Many have them in BF16 as its weights are, which changes the experts of some rows.
        CHECK(row_differences(exact, model, {8, 1}).back() < 1e-3);
        for (const Reading reading : {Reading{40, 40}, Reading{21, 7}}) {
            const std::vector<double> rows = row_differences(exact, model, reading);
            CHECK(rows[rows.size() / 2] < 3e-2);
        }
    }
}

TEST_CASE("gpu: models whose experts the CPU has are as near the reference") {
    if (!has_devices(1)) return;
    for (const std::string& path : k_models) {
        INFO(path);
        const auto exact_model = open_on(path, {}, Arithmetic::exact);
        const std::vector<float> exact = logits(exact_model, Format::f32, 40, 40);
        const auto exact_apart = open_with_host_experts(path, Arithmetic::exact);
        for (const Reading reading : {Reading{40, 40}, Reading{21, 7}, Reading{8, 1}})
            CHECK(difference(exact, exact_apart, Format::f32, reading) < 1e-5);
        const std::vector<float> exact_f16 = logits(exact_model, Format::f16, 24, 24);
        const double on_cpu =
            difference(exact_f16, logits(open_on(path, {}, Arithmetic::fast), Format::f16, 24, 24));
        const auto apart = open_with_host_experts(path, Arithmetic::fast);
        for (const Reading reading : {Reading{24, 24}, Reading{8, 1}})
            CHECK(difference(exact_f16, apart, Format::f16, reading) < std::max(2.5 * on_cpu, 5e-3));
    }
}

TEST_CASE(
    "gpu: models whose experts lie partly on the device and partly with the CPU are as near the "
    "reference") {
    if (!has_devices(1)) return;
    for (const std::string& path : k_models) {
        INFO(path);
        const auto exact_model = open_on(path, {}, Arithmetic::exact);
        const std::vector<float> exact = logits(exact_model, Format::f32, 40, 40);
        const std::vector<float> exact_f16 = logits(exact_model, Format::f16, 24, 24);
        const double on_cpu =
            difference(exact_f16, logits(open_on(path, {}, Arithmetic::fast), Format::f16, 24, 24));
        const auto on_device = open_on(path, {0}, Arithmetic::fast);
        const uint64_t all = expert_bytes(*open_with_host_experts(path, Arithmetic::exact, 1));
        for (const runtime::ExpertMoves moves :
             {runtime::ExpertMoves::fixed, runtime::ExpertMoves::reproducible}) {
            // Some of the steps are repeated records.
            const auto exact_halves = open_with_host_experts(path, Arithmetic::exact, all / 2, moves);
            for (const Reading reading : {Reading{40, 40}, Reading{21, 7}, Reading{8, 1}})
                CHECK(difference(exact, exact_halves, Format::f32, reading) < 1e-5);
            const auto halves = open_with_host_experts(path, Arithmetic::fast, all / 2, moves);
            for (const Reading reading : {Reading{24, 24}, Reading{8, 1}}) {
                const double alone = difference(exact_f16, on_device, Format::f16, reading);
                CHECK(difference(exact_f16, halves, Format::f16, reading) <
                      std::max(2.5 * std::max(on_cpu, alone), 5e-3));
            }
            for (const auto& model : {exact_halves, halves}) {
                const runtime::ExpertPoolState state = model->expert_pools()[0]->state();
                CHECK(state.n_hits > 0);
                CHECK(state.n_misses > 0);
                CHECK((state.n_moves > 0) == (moves == runtime::ExpertMoves::reproducible));
            }
        }
    }
}

TEST_CASE("gpu: a model that exchanges with the host by pieces has the logits that it has by flags") {
    if (!has_devices(1)) return;
    const std::string& path = k_models[0];
    const uint64_t all = expert_bytes(*open_with_host_experts(path, Arithmetic::exact, 1));
    const auto logits_with = [&](const char* paths, const Reading& reading) {
        const SetLaunchPaths set(paths);
        return logits(open_with_host_experts(path, Arithmetic::fast, all / 2), Format::f16, reading.count,
                      reading.chunk);
    };
    for (const Reading reading : {Reading{8, 1}, Reading{12, 3}, Reading{24, 24}})
        CHECK(logits_with("exchange-pieces", reading) == logits_with("", reading));
}

TEST_CASE("gpu: prompts that copy experts to the device are as near the reference") {
    if (!has_devices(1)) return;
    for (const std::string& path : k_models) {
        INFO(path);
        const std::vector<float> exact = logits(open_on(path, {}, Arithmetic::exact), Format::f16, 40, 40);
        const double on_cpu =
            difference(exact, logits(open_on(path, {}, Arithmetic::fast), Format::f16, 40, 40));
        const uint64_t all = expert_bytes(*open_with_host_experts(path, Arithmetic::exact, 1));
        for (const double break_even : {0.0, 6.0}) {
            for (const Arithmetic arithmetic : {Arithmetic::exact, Arithmetic::fast}) {
                const auto model = open_with_host_experts(
                    path, arithmetic, all / 2, runtime::ExpertMoves::fixed, {.break_even_slots = break_even});
                const double most = arithmetic == Arithmetic::exact ? 5e-3 : std::max(2.5 * on_cpu, 5e-3);
                CHECK(difference(exact, model, Format::f16, {40, 40}) < most);
                CHECK(model->expert_pools()[0]->state().n_streamed > 0);
            }
        }
    }
}

TEST_CASE("gpu: a copy of memory that is pinned in two pieces arrives whole") {
    if (!has_devices(1)) return;
    constexpr uint64_t k_page = 4096;
    const auto device = cuda::make_cuda_backend(0, Arithmetic::fast);
    // Nearly all of it is never touched.
    const Buffer block(backend::k_pinned_piece + 2 * k_page, "a block with a border of pieces",
                       Buffer::Presence::later);
    const uint64_t past_page = reinterpret_cast<uintptr_t>(block.data() + k_page) % backend::k_pinned_piece;
    std::byte* border =
        block.data() + k_page + (backend::k_pinned_piece - past_page) % backend::k_pinned_piece;
    std::byte* from = border - k_page;
    for (uint64_t i = 0; i < 2 * k_page; ++i) from[i] = static_cast<std::byte>(i * 7 + i / 256);
    const auto first = device->pin({from, k_page});
    const auto second = device->pin({border, k_page});
    CHECK((first != nullptr && second != nullptr));
    const auto memory = device->allocate(2 * k_page, "a copy");
    const auto stream = device->reserve({});
    device->upload(*stream, memory->data(), from, 2 * k_page);
    device->synchronize(*stream);
    std::vector<std::byte> arrived(2 * k_page);
    device->read(arrived.data(), memory->data(), arrived.size());
    CHECK(std::equal(arrived.begin(), arrived.end(), from));
}

TEST_CASE("gpu: two devices give the logits of one") {
    if (!has_devices(2)) return;
    for (const std::string& path : k_models)
        CHECK(logits(open_on(path, {0, 1}, Arithmetic::fast), Format::f16, 20, 20) ==
              logits(open_on(path, {0}, Arithmetic::fast), Format::f16, 20, 20));
}

TEST_CASE("gpu: a state saved on the device is restored with the same logits, forks and all") {
    if (!has_devices(1)) return;
    const TemporaryFolder folder;
    const Logger silent;
    const auto model = open_on(k_models[0], {0}, Arithmetic::fast);
    engine::SessionParams params;
    params.n_context = 200;
    engine::Session session(model, params, silent);
    session.eval(some_ids(101), false, {}, nullptr);
    const auto fork = session.fork();
    session.save(folder / "state", session.n_tokens(), nullptr);
    const auto restored =
        engine::Session::restore(model, kv::StateFile(folder / "state"), {}, nullptr, silent);
    const std::vector<int32_t> more = {5, 6, 7};
    for (engine::Session* s : {&session, fork.get(), restored.get()}) s->eval(more, false, {}, nullptr);
    CHECK(std::ranges::equal(last_logits_of(session), last_logits_of(*fork)));
    CHECK(std::ranges::equal(last_logits_of(session), last_logits_of(*restored)));
}

TEST_CASE("gpu: the work space of a step is known without allocating it") {
    if (!has_devices(1)) return;
    for (const Arithmetic arithmetic : {Arithmetic::exact, Arithmetic::fast, Arithmetic::deterministic}) {
        for (const int64_t n_rows : {0, 1, 70}) {
            for (const int64_t head_dim : {40, 128}) {
                const auto device = cuda::make_cuda_backend(0, arithmetic);
                const backend::StepLimits limits = {.n_rows = n_rows,
                                                    .n_context = 300,
                                                    .hidden = 1024,
                                                    .n_head = 12,
                                                    .n_head_kv = 4,
                                                    .head_dim = head_dim,
                                                    .n_expert = 9,
                                                    .n_expert_used = 3,
                                                    .expert_ff = 512,
                                                    .n_vocab = 1000};
                const uint64_t bytes = device->step_bytes(limits);
                CHECK(device->memory().used() == 0);
                const auto stream = device->reserve(limits);
                CHECK(device->memory().used(backend::MemoryUse::work) == bytes);
            }
        }
    }
}

TEST_CASE("gpu: what does not fit is refused with the figures") {
    if (!has_devices(1)) return;
    const auto device = cuda::make_cuda_backend(0, Arithmetic::fast);
    expect_error(Status::out_of_device_memory, "cuda:0: 1125899906842624 bytes for a test needed, ",
                 [&] { static_cast<void>(device->allocate(uint64_t{1} << 50, "a test")); });
    CHECK(device->allocate(0, "a test")->size() == 0);
    const auto limited = cuda::make_cuda_backend(0, Arithmetic::fast, 1 << 20);
    const auto half = limited->allocate(1 << 19, "weights", backend::MemoryUse::weights);
    CHECK(limited->available_bytes() == 1 << 19);
    expect_error(Status::out_of_device_memory,
                 "cuda:0: 524289 bytes for a test needed, 524288 bytes available; 524288 of the budget of "
                 "1048576 bytes "
                 "are used",
                 [&] { static_cast<void>(limited->allocate((1 << 19) + 1, "a test")); });
    expect_error(Status::unsupported, "600 experts", [&] {
        static_cast<void>(device->reserve({.n_rows = 1, .n_expert = 600, .n_expert_used = 1}));
    });
    expect_error(Status::unsupported, "600 experts", [&] {
        static_cast<void>(device->step_bytes({.n_rows = 1, .n_expert = 600, .n_expert_used = 1}));
    });
}

}  // namespace minim::test
