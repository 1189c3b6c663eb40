// SPDX-License-Identifier: Apache-2.0
// Tests that experts for which a device has no room are placed on the CPU before anything is loaded.
#include <optional>

#include "backend/device_memory.h"
#include "base/error.h"
#include "base/format_text.h"
#include "model/roles.h"
#include "runtime/step_space.h"
#include "sim/devices.h"
#include "support/catch.h"
#include "support/helpers.h"

namespace minim::test {
namespace {

using placement::k_cache_all_room;

constexpr int64_t k_context = 256;

std::shared_ptr<const sim::SimBackend> device_with(uint64_t budget_bytes, int32_t index = 0) {
    return std::make_shared<const sim::SimBackend>(index, sim::Options{.budget_bytes = budget_bytes});
}

int64_t n_host_layers(const model::Model& model) {
    int64_t n = 0;
    for (const runtime::Shard& share : model.placement().shards())
        if (share.n_layer == 0) n += std::ssize(share.expert_layers);
    return n;
}

int64_t n_places(const model::Model& model) {
    int64_t n = 0;
    for (const auto& pool : model.expert_pools())
        if (pool != nullptr) n += pool->state().n_places;
    return n;
}

}  // namespace

TEST_CASE(
    "as many layers' experts stay on a device as leave room for the context, and the context fits then") {
    const std::vector<int32_t> ids = some_ids(50);
    engine::Session expected = make_session(model_on_cpu(), k_context);
    const std::vector<float> logits = all_logits(expected, ids, 50);
    const auto unlimited = device_with(backend::k_no_budget);
    {
        const auto model = model_placed(machine_of({unlimited}), {.n_context = k_context});
        CHECK(to_string(model->placement()) == "sim:0 (layers 0-2)");
        const engine::Session session = make_session(model, k_context);
    }
    const uint64_t most = unlimited->most_used_bytes();
    int64_t last = -1;
    std::vector<int64_t> n_layers;  // of the CPU, by budget
    for (uint64_t budget = most / 16; budget < most + most / 8; budget += most / 48) {
        const auto device = device_with(budget);
        std::shared_ptr<const model::Model> model;
        try {
            model = model_placed(machine_of({device}), {.n_context = k_context});
        } catch (const Error& error) {
            CHECK(error.status() == Status::out_of_device_memory);
            CHECK(std::string(error.what()).find("sim:0") != std::string::npos);
            CHECK(error.facts().requested > error.facts().available);
            CHECK(last == -1);  // a larger budget never fails where a smaller one did not
            CHECK(device->used_bytes() == 0);
            continue;
        }
        const int64_t n = n_host_layers(*model);
        if (last >= 0) CHECK(n <= last);
        last = n;
        if (n_layers.empty() || n_layers.back() != n) n_layers.push_back(n);
        // The experts of the first layers go to the CPU, those of the last layers stay.
        for (const runtime::Shard& share : model->placement().shards())
            if (share.n_layer == 0) CHECK(share.expert_layers.front() == 0);
        engine::Session session = make_session(model, k_context);
        CHECK(all_logits(session, ids, 50) == logits);
    }
    CHECK(n_layers == std::vector<int64_t>{3, 2, 1, 0});
}

TEST_CASE("a device without room for its layers' own part is refused before anything is copied") {
    const auto device = device_with(1 << 20);
    expect_error(Status::out_of_device_memory,
                 "sim:0: ", [&] { model_placed(machine_of({device}), {.n_context = 65536}); });
    CHECK(device->counts().bytes_from_host == 0);
    CHECK(device->used_bytes() == 0);
    const auto other = device_with(6 << 20);
    expect_error(Status::out_of_device_memory, "sim:0: layers 0-2 need",
                 [&] { model_placed(machine_of({other}), {.n_context = 100000}); });
    expect_error(Status::out_of_device_memory,
                 "bytes without experts, for weights, KV cache and work space; ",
                 [&] { model_placed(machine_of({other}), {.n_context = 100000}); });
    expect_error(Status::out_of_device_memory, "of the budget of 6291456 bytes are used",
                 [&] { model_placed(machine_of({other}), {.n_context = 100000}); });
    CHECK(other->counts().bytes_from_host == 0);
    CHECK(other->used_bytes() == 0);
    expect_error(Status::invalid, "-1 tokens", [&] { model_placed(machine_of({other}), {.n_context = -1}); });
    expect_error(Status::invalid, "9999999999 tokens",
                 [&] { model_placed(machine_of({other}), {.n_context = 9999999999}); });
}

TEST_CASE("a device that shares the host's memory takes all layers with their experts, or none") {
    const auto shared_device = [](uint64_t budget_bytes) {
        return std::make_shared<const sim::SimBackend>(
            0, sim::Options{.budget_bytes = budget_bytes, .shares_host_memory = true});
    };
    const std::vector<int32_t> ids = some_ids(30);
    engine::Session expected = make_session(model_on_cpu(), k_context);
    const auto roomy = shared_device(backend::k_no_budget);
    {
        const auto model =
            model_placed(machine_of({roomy}), {.n_context = k_context, .cache_bytes = k_cache_all_room});
        CHECK(to_string(model->placement()) == "sim:0 (layers 0-2)");
        CHECK(n_places(*model) == 0);
        engine::Session session = make_session(model, k_context);
        CHECK(all_logits(session, ids, 30) == all_logits(expected, ids, 30));
    }
    // With three quarters of that memory, a device of its own offloads experts; this one is refused before anything is copied.
    const uint64_t less = roomy->most_used_bytes() / 4 * 3;
    CHECK_NOTHROW(model_placed(machine_of({device_with(less)}), {.n_context = k_context}));
    const auto small = shared_device(less);
    expect_error(Status::out_of_device_memory, "in the memory that it shares with the host",
                 [&] { model_placed(machine_of({small}), {.n_context = k_context}); });
    expect_error(Status::out_of_device_memory, "with all experts", [&] {
        model_placed(machine_of({small}), {.n_context = k_context, .cache_bytes = k_cache_all_room});
    });
    CHECK(small->counts().bytes_from_host == 0);

    expect_error(Status::unsupported, "n_host_experts (1) keeps experts on the CPU, but sim:0 shares",
                 [&] { model_placed(machine_of({roomy}), {.n_host_experts = 1}); });
    expect_error(Status::unsupported, "it must be the only device", [&] {
        model_placed(machine_of({roomy, device_with(backend::k_no_budget, 1)}));
    });
}

TEST_CASE("what rules place stays where they say, and each device is filled by itself") {
    const auto large = device_with(backend::k_no_budget, 0);
    const auto small = device_with(23 << 20, 1);
    // The second device has room for none of its two layers' experts, or the rule takes it.
    {
        const auto model = model_placed(machine_of({large, small}), {.shares = {1, 2}, .n_context = 8192});
        CHECK(to_string(model->placement()) ==
              "sim:0 (layer 0), sim:1 (layers 1-2), cpu (experts of layers 1-2)");
    }
    const auto other = device_with(backend::k_no_budget, 2);
    const auto ruled = model_placed(
        machine_of({large, small}, {other}),
        {.shares = {1, 2}, .overrides = R"(blk\.2\..*exps=sim:2)", .n_host_experts = 1, .n_context = 8192});
    CHECK(to_string(ruled->placement()) ==
          "sim:0 (layer 0), sim:1 (layers 1-2), cpu (experts of layers 0-1), sim:2 (experts of layer 2)");
    engine::Session session = make_session(ruled, 8192);
    engine::Session expected = make_session(model_on_cpu(), 8192);
    CHECK(all_logits(session, some_ids(20), 20) == all_logits(expected, some_ids(20), 20));
}

TEST_CASE("layers of the CPU need no room found for them") {
    const auto device = device_with(backend::k_no_budget);
    const auto model = model_placed(machine_of({device}), {.n_device_layers = 1, .n_context = k_context});
    CHECK(to_string(model->placement()) == "cpu (layers 0-1), sim:0 (layer 2)");
}

TEST_CASE("experts that have no room share what is left beside the context, as a cache") {
    const std::vector<int32_t> ids = some_ids(50);
    engine::Session expected = make_session(model_on_cpu(), k_context);
    const std::vector<float> logits = all_logits(expected, ids, 50);
    const auto unlimited = device_with(backend::k_no_budget);
    model_placed(machine_of({unlimited}), {.n_context = k_context});
    const uint64_t most = unlimited->most_used_bytes();
    int64_t last = -1;
    bool was_whole = false;
    for (uint64_t budget = most / 8; budget < 3 * most; budget += most / 16) {
        const auto device = device_with(budget);
        std::shared_ptr<const model::Model> model;
        try {
            model =
                model_placed(machine_of({device}), {.n_context = k_context, .cache_bytes = k_cache_all_room});
        } catch (const Error& error) {
            CHECK(error.status() == Status::out_of_device_memory);
            CHECK(last == -1);
            continue;
        }
        const int64_t n = n_places(*model);
        const bool is_whole = n_host_layers(*model) == 0;
        INFO(budget << " of " << most << ": " << placement::placement_text(*model));
        CHECK((is_whole ? n == 0 : n_host_layers(*model) == 3));
        CHECK(was_whole <= is_whole);
        if (!is_whole) {
            CHECK(n >= last);
            last = n;
        }
        was_whole = is_whole;
        engine::Session session = make_session(model, k_context);
        CHECK(all_logits(session, ids, 50) == logits);
    }
    CHECK(last > 0);
    CHECK(was_whole);
}

TEST_CASE("a device answers for its own layers though the host shares the experts of others") {
    const std::vector<int32_t> ids = some_ids(50);
    engine::Session expected = make_session(model_on_cpu(), k_context);
    const std::vector<float> logits = all_logits(expected, ids, 50);
    for (const int64_t n_host : {1, 2, -1, -2}) {
        const auto model =
            model_placed(machine_of({device_with(backend::k_no_budget)}),
                         {.n_host_experts = n_host, .n_context = k_context, .cache_bytes = k_cache_all_room});
        CHECK(n_host_layers(*model) == std::abs(n_host));
        CHECK(n_places(*model) > 0);
        for (const size_t chunk : {50, 7, 1}) {
            engine::Session session = make_session(model, k_context);
            CHECK(all_logits(session, ids, chunk) == logits);
        }
    }
}

TEST_CASE("where nothing is said of experts, a context is chosen that leaves room for most of them") {
    const auto unlimited = device_with(backend::k_no_budget);
    {
        const auto model = model_placed(machine_of({unlimited}), {.cache_bytes = k_cache_all_room});
        CHECK(placement::placement_text(*model) == "sim:0 (layers 0-2)");
    }
    const uint64_t all = unlimited->most_used_bytes();
    const auto roomy = device_with(4 * all);
    CHECK(placement::placement_text(*model_placed(machine_of({roomy}), {.cache_bytes = k_cache_all_room})) ==
          "sim:0 (layers 0-2)");
    std::shared_ptr<const model::Model> model;
    for (uint64_t budget = all; model == nullptr || n_places(*model) == 0; budget += all / 16)
        model = model_placed(machine_of({device_with(budget)}), {.cache_bytes = k_cache_all_room});
    const std::string text = placement::placement_text(*model);
    CHECK(text == format_text("sim:0 (layers 0-2, cache of {} experts), cpu (experts of layers 0-2)",
                              n_places(*model)));
    CHECK(n_places(*model) > 0);
    engine::Session session = make_session(model, 256);
    engine::Session expected = make_session(model_on_cpu(), 256);
    CHECK(all_logits(session, some_ids(20), 20) == all_logits(expected, some_ids(20), 20));
    expect_error(Status::out_of_device_memory, "sim:0: ", [&] {
        model_placed(machine_of({device_with(1 << 20)}), {.cache_bytes = k_cache_all_room});
    });
    // A cache whose size is given keeps that size.
    const auto other = device_with(backend::k_no_budget);
    const auto cached = model_placed(machine_of({other}), {.cache_bytes = 1 << 20});
    CHECK(n_host_layers(*cached) == 3);
    CHECK(n_places(*cached) > 0);
}

TEST_CASE("beside a cache of all room there is room for steps of the rows that are asked for") {
    constexpr int64_t k_rows = 768;  // instead of 512
    const auto open = [](uint64_t budget, int64_t rows) {
        return model_placed(machine_of({device_with(budget)}),
                            {.n_context = k_rows, .n_rows = rows, .cache_bytes = k_cache_all_room});
    };
    const auto read = [](const std::shared_ptr<const model::Model>& model) {
        engine::SessionParams params;
        params.n_context = params.n_ubatch = k_rows;
        const Logger silent;
        const engine::Session session(model, params, silent);
    };
    const auto unlimited = device_with(backend::k_no_budget);
    read(model_placed(machine_of({unlimited}), {.n_context = k_rows, .n_rows = k_rows}));
    const uint64_t budget = unlimited->most_used_bytes() - (1 << 20);  // a part of the experts has no room
    const auto model = open(budget, k_rows);
    const auto by_default = open(budget, 0);
    CHECK(n_places(*model) > 0);
    CHECK(n_places(*model) < n_places(*by_default));
    CHECK_NOTHROW(read(model));
    expect_error(Status::out_of_device_memory, " needed, ", [&] { read(by_default); });
}

TEST_CASE("a device with room for its experts keeps them, though another one needs a cache") {
    const auto large = device_with(backend::k_no_budget, 0);
    const auto small = device_with(12 << 20, 1);
    const auto model = model_placed(machine_of({large, small}),
                                    {.shares = {1, 2}, .n_context = 2048, .cache_bytes = k_cache_all_room});
    CHECK(n_places(*model) > 0);
    CHECK(placement::placement_text(*model) ==
          format_text("sim:0 (layer 0), sim:1 (layers 1-2, cache of {} experts), cpu (experts of layers 1-2)",
                      n_places(*model)));
}

TEST_CASE("where the speeds are known, a cache gets no more experts than pay, and steps the rows that do") {
    constexpr uint64_t k_mib = uint64_t{1} << 20;
    model::Config config;
    config.n_layer = 10;
    config.hidden = 128;
    config.n_head = 1;
    config.n_head_kv = 1;
    config.head_dim = 128;
    config.n_expert = 64;
    config.n_expert_used = 4;
    config.expert_ff = 480;
    config.n_vocab = 1024;
    config.n_context_train = 8192;
    const auto weights_of = [](uint64_t expert_bytes) {
        std::vector<weights::WeightSpec> weights = shapes_of_layers(10);
        for (int32_t layer = 0; layer < 10; ++layer)
            for (int32_t e = 0; e < 64; ++e)
                weights.push_back({.role = static_cast<int32_t>(model::Role::gate),
                                   .layer = layer,
                                   .expert = e,
                                   .use = weights::Use::product,
                                   .rows = 1,
                                   .row_bytes = static_cast<int64_t>(expert_bytes)});
        return weights;
    };
    // The speeds of the host and the device; a host of 0 bytes a second: they are not known.
    const auto placement_with = [&](const placement::HostFacts& host, const placement::DeviceFacts& device,
                                    int64_t n_context = 0) {
        placement::Machine machine = machine_of({device_with(900 * k_mib)});
        machine.measure = [host, device](placement::Machine& measured, std::span<const weights::WeightSpec>) {
            measured.host.bytes_per_second = host.bytes_per_second;
            measured.devices.front().bytes_per_second = device.bytes_per_second;
            measured.devices.front().link_bytes_per_second = device.link_bytes_per_second;
            return host.bytes_per_second > 0.0;
        };
        return placement::place_on(machine, {.n_context = n_context, .cache_bytes = k_cache_all_room})(
            config, weights_of(2 * k_mib));
    };
    constexpr uint64_t k_all = 640 * 2 * k_mib;
    const runtime::Placement unknown = placement_with({}, {});
    CHECK(unknown.stages().front().cache_bytes > k_all / 2);
    CHECK(unknown.prompt_rows() == runtime::k_default_step_rows);

    // Both read at 1 GB/s: the device has computed about half of the experts when the host has computed the others.
    const placement::HostFacts host = {0, 1e9};
    const uint64_t balanced = placement_with(host, {"sim:0", 0, 1e9, 0.0}).stages().front().cache_bytes;
    CHECK(balanced > k_all / 3);
    CHECK(balanced <= k_all / 2);

    // A fast device waits for the experts that steps copy, which more rows share.
    const placement::DeviceFacts fast = {"sim:0", 0, 4e9, 2e9};
    CHECK(placement_with(host, fast).prompt_rows() > runtime::k_default_step_rows);
    // As well beside a context that the caller names.
    CHECK(placement_with(host, fast, 16384).prompt_rows() > runtime::k_default_step_rows);

    // One device with room for all is not measured.
    bool is_measured = false;
    placement::Machine machine = machine_of({device_with(1000 * k_mib)});
    machine.measure = [&](placement::Machine&, std::span<const weights::WeightSpec>) {
        return is_measured = true;
    };
    const runtime::Placement whole =
        placement::place_on(machine, {.cache_bytes = k_cache_all_room})(config, weights_of(k_mib));
    CHECK(whole.stages().front().cache_bytes == 0);
    CHECK_FALSE(is_measured);
}

TEST_CASE("the rows of prompt steps are those that the placement chose, if the caller states none") {
    const Logger silent;
    const auto device = device_with(backend::k_no_budget);
    const auto split = [&](const model::Config& config, std::span<const weights::WeightSpec>) {
        return runtime::Placement({{.backend = device, .n_layer = config.n_layer}}, 700);
    };
    const auto model =
        std::make_shared<const model::Model>(bundled_model_path(), split, model::OpenOptions{}, silent);
    CHECK(model->prompt_rows() == 700);
    CHECK(model_on_cpu()->prompt_rows() == runtime::k_default_step_rows);
    const auto work_of = [&](int64_t n_ubatch) {
        engine::SessionParams params;
        params.n_context = 1024;
        params.n_ubatch = n_ubatch;
        const engine::Session session(model, params, silent);
        return device->memory().used(backend::MemoryUse::work);
    };
    CHECK(work_of(0) == work_of(700));
    CHECK(work_of(0) > work_of(512));
}

}  // namespace minim::test
