// SPDX-License-Identifier: Apache-2.0
// Steps that the CUDA backend records and repeats, with work recorded on the host.
#include <algorithm>
#include <cmath>

#include "cuda/cuda_backend.h"
#include "engine/generation.h"
#include "engine/importance.h"
#include "engine/session.h"
#include "gpu/emulated_thread.h"
#include "gpu/recorder.h"
#include "model/model.h"
#include "placement/backends.h"
#include "runtime/placement.h"
#include "support/catch.h"
#include "support/helpers.h"

namespace minim::test {
namespace {

const std::string k_q8_path = std::string(MINIM_EXAMPLE_MODELS) + "/minim-tiny-q8_0.gguf";

std::shared_ptr<const model::Model> open(size_t n_devices, const std::string& path = k_q8_path) {
    const Logger silent;
    const auto split = [&](const model::Config& config, std::span<const weights::WeightSpec>) {
        std::vector<runtime::Stage> stages;
        const auto n = static_cast<int64_t>(n_devices);
        for (int64_t i = 0; i < n; ++i)
            stages.push_back({cuda::make_cuda_backend(static_cast<int32_t>(i), backend::Arithmetic::fast),
                              config.n_layer * (i + 1) / n - config.n_layer * i / n});
        return stages;
    };
    return std::make_shared<const model::Model>(path, split, model::OpenOptions{}, silent);
}

// Opens a model with the layers on the first device; of their experts one layer's on the CPU and the last one's on the second device.
std::shared_ptr<const model::Model> open_apart() {
    const Logger silent;
    const auto split = [&](const model::Config& config, std::span<const weights::WeightSpec>) {
        const std::shared_ptr<const backend::Backend> first =
            cuda::make_cuda_backend(0, backend::Arithmetic::fast);
        runtime::Stage stage = {first, config.n_layer, {first, first, first}};
        stage.experts[0] =
            placement::make_backend("cpu", std::make_shared<const ThreadPool>(1), active_cpu_level());
        stage.experts[2] = cuda::make_cuda_backend(1, backend::Arithmetic::fast);
        return std::vector<runtime::Stage>{stage};
    };
    return std::make_shared<const model::Model>(k_q8_path, split, model::OpenOptions{}, silent);
}

// Returns the logits of tokens one by one after a prompt of 60, and of two more.
std::vector<float> decoded(const std::shared_ptr<const model::Model>& model, size_t n_tokens) {
    const Logger silent;
    engine::SessionParams params;
    params.n_context = 100;
    engine::Session session(model, params, silent);
    session.eval(some_ids(60), false, {}, nullptr);
    const auto n_vocab = static_cast<size_t>(model->config().n_vocab);
    std::vector<float> all((n_tokens + 2) * n_vocab);
    const std::vector<int32_t> ids = some_ids(n_tokens + 2, 60);
    for (size_t i = 0; i < n_tokens; ++i)
        session.eval(std::span(ids).subspan(i, 1), true, std::span(all).subspan(i * n_vocab, n_vocab),
                     nullptr);
    session.eval(std::span(ids).subspan(n_tokens), true, std::span(all).subspan(n_tokens * n_vocab), nullptr);
    return all;
}

struct SetRecords {
    explicit SetRecords(const Records& wanted) { records() = wanted; }
    ~SetRecords() { records() = {}; }
};

// Returns the same without recorded steps.
std::vector<float> computed(const std::shared_ptr<const model::Model>& model, size_t n_tokens) {
    const SetRecords none({.refuse = true});
    const std::vector<float> logits = decoded(model, n_tokens);
    CHECK(records().n_repeats == 0);
    return logits;
}

}  // namespace

TEST_CASE("recorded steps: the same bits as computed ones, on one device and on two") {
    for (const size_t n_devices : {1, 2}) {
        const auto model = open(n_devices);
        const std::vector<float> expected = computed(model, 9);
        {
            const SetRecords all({});
            CHECK(decoded(model, 9) == expected);
            // Positions 60 .. 63 and 64 .. 68 have contexts of another size: the first of each is not recorded.
            CHECK(records().n_repeats == static_cast<int64_t>(7 * n_devices));
        }
        {
            const SetRecords failing({.fail = true});
            CHECK(decoded(model, 3) == std::vector<float>(decoded(model, 3)));
            CHECK(records().n_repeats == 0);
        }
    }
}

TEST_CASE("recorded steps: rows that attend to chosen blocks have the same bits as in computed steps") {
    const auto model = open(1, MINIM_TEST_DATA "/models/minim-tiny-m3");
    const std::vector<float> expected = computed(model, 9);
    const SetRecords all({});
    CHECK(decoded(model, 9) == expected);
    CHECK(records().n_repeats == 7);
}

TEST_CASE("recorded steps: where no record can be made or started, steps are computed") {
    for (const size_t n_devices : {1, 2}) {
        const auto model = open(n_devices);
        const std::vector<float> expected = computed(model, 9);
        for (const Records& trouble : {Records{.spoil = true}, Records{.no_room = true}}) {
            const SetRecords set(trouble);
            CHECK(decoded(model, 9) == expected);
            CHECK(records().n_repeats == 0);
        }
        const SetRecords all({});  // the devices are not lost
        CHECK(decoded(model, 9) == expected);
        CHECK(records().n_repeats == static_cast<int64_t>(7 * n_devices));
    }
}

TEST_CASE("recorded steps: a device says once for each stream that it records differently, or no longer") {
    const auto model = open(1);
    std::vector<std::string> said;
    model->placement().stages()[0].backend->on_warning(
        [&](std::string_view text) { said.emplace_back(text); });
    const std::vector<float> expected = computed(model, 9);
    REQUIRE(said.size() == 2);
    CHECK(said[0] == "steps are recorded without early launch from now on: no record can be begun");
    CHECK(said[1] ==
          "steps are launched kernel by kernel from now on, which is slower: no record can be begun");
    said.clear();
    const SetRecords refusing({.refuse_early = true});
    CHECK(decoded(model, 9) == expected);
    REQUIRE(said.size() == 1);
    CHECK(said[0] == "steps are recorded without early launch from now on: it cannot be a graph");
    CHECK(records().n_repeats > 0);  // without early launch
    const backend::StepCounts counts = model->placement().stages()[0].backend->step_counts();
    CHECK(counts.repeated == records().n_repeats);
    CHECK(counts.failed == 9);
    model->placement().stages()[0].backend->on_warning(nullptr);
}

TEST_CASE("recorded steps: kernels that start early are not recorded, or a record does not start at times") {
    for (const size_t n_devices : {1, 2}) {
        const auto model = open(n_devices);
        const std::vector<float> expected = computed(model, 6);
        for (const Records& trouble : {Records{.refuse_early = true}, Records{.fail_at_repeat = 3}}) {
            const SetRecords set(trouble);
            CHECK(decoded(model, 6) == expected);
            CHECK(recording() == nullptr);
            CHECK(graphs_stored() == 0);
            if (trouble.fail_at_repeat > 0) CHECK(records().n_asked >= trouble.fail_at_repeat);
        }
        const SetRecords all({});  // the devices are not lost
        CHECK(decoded(model, 6) == expected);
        CHECK(records().n_repeats == static_cast<int64_t>(4 * n_devices));
        CHECK(graphs_stored() == 0);
    }
}

TEST_CASE(
    "recorded steps: the same bits where kernels start early, and whatever else a machine leaves open") {
    for (const size_t n_devices : {1, 2}) {
        const auto model = open(n_devices);
        const std::vector<float> expected = computed(model, 4);
        for (const Emulation& way :
             {Emulation{.starts_early = true},
              Emulation{.backwards = true, .copies_at_once = true, .starts_early = true, .seed = 3}}) {
            const Emulating how(way);
            const SetRecords all({});
            CHECK(decoded(model, 4) == expected);
            CHECK(records().n_repeats > 0);
        }
    }
}

TEST_CASE("recorded steps: one that was cancelled is not taken for computed") {
    const auto model = open(1);
    const Logger silent;
    engine::SessionParams params;
    params.n_context = 100;
    engine::Session session(model, params, silent);
    const std::vector<int32_t> ids = some_ids(1);
    std::vector<float> logits(static_cast<size_t>(model->config().n_vocab));
    const SetRecords all({});
    CancelToken cancelled;
    cancelled.trigger();
    expect_error(Status::cancelled, "", [&] { session.eval(ids, true, logits, &cancelled); });
    session.eval(ids, true, logits, nullptr);
    CHECK(records().n_repeats == 0);
    session.eval(ids, true, logits, nullptr);
    CHECK(records().n_repeats == 1);
}

TEST_CASE("recorded steps: tokens chosen from top-k are those of computed steps") {
    const auto model = open(1);
    const auto written = [&](float temperature) {
        const Logger silent;
        engine::SessionParams params;
        params.n_context = 100;
        engine::Session session(model, params, silent);
        engine::GenerateParams generate;
        generate.sampling.temperature = temperature;
        generate.sampling.top_p = 0.95F;
        generate.sampling.presence_penalty = 0.5F;  // asks for other ids at every step
        generate.sampling.seed = 2;
        generate.has_seed = true;
        generate.ignore_end = true;
        generate.max_tokens = 9;
        engine::Generation generation(session, generate, some_ids(10), nullptr);
        std::vector<int32_t> tokens;
        while (const auto event = generation.next(nullptr)) tokens.push_back(event->choice.token);
        return tokens;
    };
    for (const float temperature : {0.0F, 0.9F}) {
        std::vector<int32_t> computed;
        {
            const SetRecords none({.refuse = true});
            computed = written(temperature);
        }
        CHECK(computed.size() == 9);
        const SetRecords all({});
        CHECK(written(temperature) == computed);
        // The first token comes from the prompt's step, the second from one that is not recorded.
        CHECK(records().n_repeats == 7);
    }
}

TEST_CASE("recorded steps: those that offloaded experts cut into parts are recorded part by part") {
    const auto model = open_apart();
    const std::vector<float> expected = computed(model, 9);
    {
        // Embedding to the choice of layer 0, layer 1 to the choice of layer 2, and the head.
        const SetRecords all({});
        CHECK(decoded(model, 9) == expected);
        CHECK(records().n_repeats == 7 * 3);
    }
    {
        const SetRecords failing({.fail = true});
        CHECK(decoded(model, 9) == expected);
        CHECK(records().n_repeats == 0);
    }
}

TEST_CASE("recorded steps: the tables of a batch are brought to a device once a step") {
    const auto model = open_apart();
    const Logger silent;
    engine::SessionParams params;
    params.n_context = 100;
    engine::Session session(model, params, silent);
    std::vector<float> logits(static_cast<size_t>(model->config().n_vocab));
    const auto eval = [&] { session.eval(some_ids(1), true, logits, nullptr); };
    eval();
    copies_to_device() = 0;
    eval();
    // The tables, and x back from the CPU. The other device's copies are its peer's.
    CHECK(copies_to_device() == 2);
}

TEST_CASE("sessions that come and go take memory of the devices and of the host once") {
    const auto model = open(2);
    std::vector<float> first;
    int64_t n_taken = 0;
    for (int i = 0; i < 4; ++i) {
        const std::vector<float> logits = decoded(model, 3);
        if (i == 0) {
            first = logits;
            n_taken = blocks_taken();
        }
        CHECK(logits == first);
    }
    CHECK(blocks_taken() == n_taken);
}

TEST_CASE("recorded steps: a cancelled one leaves nothing behind") {
    const auto model = open(1);
    const Logger silent;
    engine::SessionParams params;
    params.n_context = 100;
    engine::Session session(model, params, silent);
    const std::vector<int32_t> ids = some_ids(8);
    const auto n_vocab = static_cast<size_t>(model->config().n_vocab);
    std::vector<float> logits(n_vocab);
    const auto eval = [&](size_t i, const CancelToken* cancel) {
        session.eval(std::span(ids).subspan(i, 1), true, logits, cancel);
    };
    eval(0, nullptr);
    CancelToken cancelled;
    cancelled.trigger();
    expect_error(Status::cancelled, "", [&] { eval(1, &cancelled); });
    CHECK(recording() == nullptr);
    eval(1, nullptr);
    eval(2, nullptr);
    const std::vector<float> expected = [&] {
        const SetRecords none({.refuse = true});
        engine::Session other(model, params, silent);
        std::vector<float> out(n_vocab);
        for (size_t i = 0; i < 3; ++i) other.eval(std::span(ids).subspan(i, 1), true, out, nullptr);
        return out;
    }();
    CHECK(logits == expected);
}

TEST_CASE("recorded steps: an observer of inputs sees each step, and later steps are recorded again") {
    const auto model = open(1);
    const Logger silent;
    engine::SessionParams params;
    params.n_context = 100;
    const auto n_vocab = static_cast<size_t>(model->config().n_vocab);
    const std::vector<int32_t> ids = some_ids(12, 60);
    // Returns the logits of all tokens after a prompt, of which those from 4 to 8 are observed.
    const auto watched = [&](const engine::Importance* importance) {
        engine::Session session(model, params, silent);
        session.eval(some_ids(60), false, {}, nullptr);
        std::vector<float> all(ids.size() * n_vocab);
        for (size_t i = 0; i < ids.size(); ++i) {
            if (i == 4 && importance != nullptr) session.observe(importance->inputs());
            if (i == 8) session.observe(nullptr);
            const int64_t before = records().n_repeats;
            session.eval(std::span(ids).subspan(i, 1), true, std::span(all).subspan(i * n_vocab, n_vocab),
                         nullptr);
            const bool is_observed = importance != nullptr && i >= 4 && i < 8;
            if (records().refuse || is_observed) CHECK(records().n_repeats == before);
        }
        return all;
    };
    const engine::Importance recorded(model, {.chunk_size = 4});
    const engine::Importance computed(model, {.chunk_size = 4});
    std::vector<float> logits;
    {
        const SetRecords counted({});
        logits = watched(&recorded);
        CHECK(records().n_repeats > 0);
        const int64_t n_observed = records().n_repeats;
        const std::vector<float> unobserved = watched(nullptr);
        // Observed experts are computed by other kernels, whose sums differ in the last bits.
        CHECK(std::equal(unobserved.begin(), unobserved.begin() + 4 * std::ssize(unobserved) / 12,
                         logits.begin()));
        double largest = 0.0;
        for (size_t i = 0; i < logits.size(); ++i)
            largest = std::max(largest, std::fabs(static_cast<double>(logits[i] - unobserved[i])));
        CHECK(largest < 1e-2);
        CHECK(records().n_repeats > 2 * n_observed);
    }
    {
        const SetRecords none({.refuse = true});
        CHECK(watched(&computed) == logits);
    }
    const checkpoint::ImportanceData a = recorded.data();
    const checkpoint::ImportanceData b = computed.data();
    REQUIRE(a.entries.size() == b.entries.size());
    for (size_t i = 0; i < a.entries.size(); ++i) {
        INFO(a.entries[i].name);
        CHECK(a.entries[i].counts == b.entries[i].counts);
        CHECK(a.entries[i].sums == b.entries[i].sums);
        CHECK(a.entries[i].in_max == b.entries[i].in_max);
        CHECK(a.entries[i].out_norm == b.entries[i].out_norm);
    }
}

}  // namespace minim::test
