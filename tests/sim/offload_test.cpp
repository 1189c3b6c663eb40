// SPDX-License-Identifier: Apache-2.0
// Tests experts on another device than their layer: the model answers exactly as on one device, and no more is copied
// than necessary.
#include "backend/device_memory.h"
#include "base/cpu_features.h"
#include "base/thread_pool.h"
#include "kv/sequence.h"
#include "model/minimax_m2.h"
#include "placement/backends.h"
#include "runtime/forward_pass.h"
#include "runtime/step_space.h"
#include "sim/devices.h"
#include "sim/placement_checks.h"
#include "support/catch.h"
#include "support/helpers.h"
#include "support/requests.h"

namespace minim::test {
namespace {

constexpr int64_t k_all = INT32_MAX;

// Opens a model with the layers on the devices, and the experts of the first n_host_layers layers on the CPU.
std::shared_ptr<const model::Model> with_host_experts(const Devices& devices, int64_t n_host_layers,
                                                      const model::OpenOptions& options = {},
                                                      const std::string& path = bundled_model_path()) {
    return model_placed(machine_of({devices.begin(), devices.end()}),
                        {.shares = std::vector<double>(devices.size(), 1.0), .n_host_experts = n_host_layers},
                        options, path);
}

std::string placement_of(const model::Model& model) {
    return to_string(model.placement());
}

}  // namespace

TEST_CASE("experts on the CPU, all else on a device: the CPU's logits, bit for bit") {
    const std::vector<int32_t> ids = some_ids(70);
    const std::vector<float> expected = logits_on(model_on_cpu(), ids, 70);
    for (const auto residence : {checkpoint::HostStorage::mapped, checkpoint::HostStorage::owned}) {
        model::OpenOptions options;
        options.residence = residence;
        const Devices devices = make_devices(1);
        const auto model = with_host_experts(devices, k_all, options);
        CHECK(placement_of(*model) == "sim:0 (layers 0-2), cpu (experts of layers 0-2)");
        const bool is_owned = residence == checkpoint::HostStorage::owned;
        CHECK(model->weights().layers[1].experts.up.packed == is_owned);
        CHECK(model->weights().layers[1].wq.packed);
        CHECK(model->weight_bytes()[1].is_mapped == !is_owned);
        for (const size_t chunk : {70, 13, 1}) CHECK(logits_on(model, ids, chunk) == expected);
    }
}

TEST_CASE("experts anywhere give the logits of one device, over the host or from device to device") {
    const SixLayers six;
    for (const bool peers : {true, false}) {
        const Devices devices = make_devices(4, {.reaches_peers = peers});
        const auto expect_same = [&](const placement::Machine& machine, const placement::Request& request,
                                     const std::string& where) {
            const auto model = model_placed(machine, request, {}, six.path);
            CHECK(placement_of(*model) == where);
            for (const size_t chunk : {90, 7, 1}) CHECK(logits_on(model, six.ids, chunk) == six.expected);
        };
        const Backends two = {devices[0], devices[1]};
        // Some layers' experts on the CPU, some on a device without layers.
        expect_same(machine_of({devices[0]}, {devices[1]}),
                    {.overrides = R"(blk\.(1|5)\..*exps=sim:1)", .n_host_experts = 3},
                    "sim:0 (layers 0-5), cpu (experts of layers 0, 2), sim:1 (experts of layers 1, 5)");
        // On a device that has other layers, earlier and later ones.
        expect_same(
            machine_of(two, {devices[2]}),
            {.shares = {1, 1},
             .overrides = R"(blk\.[12]\..*exps=sim:1,blk\.[34]\..*exps=sim:0,blk\.5\..*exps=sim:2)"},
            "sim:0 (layers 0-2, experts of layers 3-4), sim:1 (layers 3-5, experts of layers 1-2), sim:2 "
            "(experts of layer 5)");
        // Layers of the CPU whose experts a device has.
        expect_same(machine_of(two, {devices[3]}),
                    {.shares = {1, 1},
                     .n_device_layers = 4,
                     .overrides = R"(blk\.0\..*exps=sim:0,blk\.1\..*exps=sim:3,blk\.(2|5)\..*exps=cpu)"},
                    "cpu (layers 0-1, experts of layers 2, 5), sim:0 (layers 2-3, experts of layer 0), sim:1 "
                    "(layers 4-5), sim:3 (experts of layer 1)");
        // Two backends of the CPU.
        placement::Machine machine = machine_of({cpu_backend()});
        machine.backends.push_back(cpu_backend());
        machine.others["other"] = 2;
        expect_same(machine, {.overrides = "exps=other"}, "cpu (layers 0-5), cpu (experts of layers 0-5)");
    }
}

TEST_CASE("a step copies activations and routing to the experts and the sum back, and nothing else") {
    const Devices devices = make_devices(1);
    const auto model = with_host_experts(devices, k_all);
    const model::Config& config = model->config();
    const auto x_bytes = static_cast<uint64_t>(config.hidden * 4);
    const auto routing_bytes = static_cast<uint64_t>(config.n_expert_used * 8);
    const auto logit_bytes = static_cast<uint64_t>(config.n_vocab * 4);
    const auto n_layer = static_cast<uint64_t>(config.n_layer);
    const sim::Counts& counts = devices[0]->counts();
    engine::Session session = make_session(model, 200);
    all_logits(session, some_ids(40), 40);
    // Decoding: all rows want logits.
    for (const uint64_t n : {1, 1, 3}) {
        const int64_t transfers = counts.transfers;
        const uint64_t in = counts.bytes_from_host;
        const uint64_t out = counts.bytes_to_host;
        const int64_t allocations = counts.allocations;
        all_logits(session, some_ids(n), n);
        CHECK(counts.transfers - transfers == 3 * config.n_layer + 1);
        CHECK(counts.bytes_from_host - in == n * n_layer * x_bytes);
        CHECK(counts.bytes_to_host - out == n * (n_layer * (x_bytes + routing_bytes) + logit_bytes));
        CHECK(counts.allocations == allocations);
    }
    // A prompt, one row of which wants logits: the last layer's experts see that one alone.
    const uint64_t in = counts.bytes_from_host;
    const uint64_t out = counts.bytes_to_host;
    const int64_t transfers = counts.transfers;
    std::vector<float> logits(static_cast<size_t>(config.n_vocab));
    session.eval(some_ids(50), false, logits, nullptr);
    const uint64_t n = 50 * (n_layer - 1) + 1;
    CHECK(counts.transfers - transfers == 3 * config.n_layer + 1);
    CHECK(counts.bytes_from_host - in == n * x_bytes);
    CHECK(counts.bytes_to_host - out == n * (x_bytes + routing_bytes) + logit_bytes);
}

TEST_CASE("between devices that reach each other nothing goes over the host") {
    const Devices devices = make_devices(2);
    const auto model = model_placed(machine_of({devices[0]}, {devices[1]}), {.overrides = "exps=sim:1"});
    const model::Config& config = model->config();
    const uint64_t loaded = devices[1]->counts().bytes_from_host;
    engine::Session session = make_session(model, 200);
    all_logits(session, some_ids(1), 1);
    const auto n_layer = static_cast<uint64_t>(config.n_layer);
    CHECK(devices[1]->counts().bytes_from_host == loaded);
    CHECK(devices[1]->counts().bytes_to_host == 0);
    CHECK(devices[1]->counts().bytes_from_peers ==
          n_layer * static_cast<uint64_t>(config.hidden * 4 + config.n_expert_used * 8));
    CHECK(devices[0]->counts().bytes_from_peers == n_layer * static_cast<uint64_t>(config.hidden * 4));
    CHECK(devices[0]->counts().bytes_to_host == static_cast<uint64_t>(config.n_vocab * 4));
}

TEST_CASE("what crosses for a token is told for each device, and is what a step copies") {
    const Devices devices = make_devices(2);
    const auto host = cpu_backend();
    const auto model =
        model_placed(machine_of({devices[0], devices[1]}, {}, host),
                     {.shares = {2, 1}, .overrides = R"(blk\.0\..*exps=sim:1)", .n_host_experts = 2});
    CHECK(placement_of(*model) ==
          "sim:0 (layers 0-1), sim:1 (layer 2, experts of layer 0), cpu (experts of layer 1)");
    const model::Config& config = model->config();
    const std::span<const runtime::Shard> shards = model->placement().shards();
    const auto in = [&](size_t i) { return shards[i].in.bytes(config.hidden, config.n_expert_used); };
    const auto out = [&](size_t i) { return shards[i].out.bytes(config.hidden, config.n_expert_used); };
    const auto x = static_cast<uint64_t>(config.hidden * 4);
    const auto routing = static_cast<uint64_t>(config.n_expert_used * 8);
    REQUIRE(shards.size() == 3);
    CHECK(in(0) == 2 * x);
    CHECK(out(0) == 3 * x + 2 * routing);
    CHECK(in(1) == 2 * x + routing);
    CHECK(out(1) == x);
    CHECK(in(2) == x + routing);
    CHECK(out(2) == x);
    engine::Session session = make_session(model, 200);
    const auto in_of = [&](size_t i) -> uint64_t {
        return devices[i]->counts().bytes_from_host + devices[i]->counts().bytes_from_peers;
    };
    const uint64_t before[] = {in_of(0), in_of(1)};
    all_logits(session, some_ids(1), 1);
    CHECK(in_of(0) - before[0] == in(0));
    CHECK(in_of(1) - before[1] == in(1));
}

TEST_CASE("each device tells the weights it has, and they add up to the model's") {
    const Devices devices = make_devices(1);
    const auto whole = model_on(make_devices(1));
    const auto model = with_host_experts(devices, 2);
    REQUIRE(model->placement().shards().size() == 2);
    const auto weights = model->weight_bytes();
    const uint64_t experts = whole->weight_bytes()[0].experts;
    // The host finds experts without a table.
    const auto table = static_cast<uint64_t>(model->config().n_expert) * sizeof(backend::ExpertPlace);
    CHECK(weights[0].experts == experts / 3);
    CHECK(weights[1].experts == experts / 3 * 2 - 2 * table);
    const auto norms =
        2 * static_cast<uint64_t>(model->config().hidden) * 4;  // copies for the experts' inputs
    CHECK(weights[1].total == weights[1].experts + norms);
    CHECK(weights[0].total + weights[1].total == whole->weight_bytes()[0].total + norms - 2 * table);
    CHECK(devices[0]->memory().used(backend::MemoryUse::weights) == weights[0].total);
    const engine::Session session = make_session(model, 128);
    // The KV cache is only on the device of its layer.
    CHECK(devices[0]->memory().used(backend::MemoryUse::kv) == session.kv_bytes());
    CHECK(model->placement().shards()[1].backend->memory().used(backend::MemoryUse::kv) == 0);
}

TEST_CASE("texts, drafts, forks and truncation with offloaded experts are those of the CPU") {
    const Devices devices = make_devices(3);
    const auto model =
        model_placed(machine_of({devices[0], devices[1]}, {devices[2]}),
                     {.shares = {2, 1}, .overrides = R"(blk\.1\..*exps=sim:2)", .n_host_experts = 3});
    check_texts(model);
}

TEST_CASE("a state saved with offloaded experts is restored where they are not, and the other way round") {
    const Devices devices = make_devices(1);
    check_states(with_host_experts(devices, 2));
}

TEST_CASE("an engine with offloaded experts answers many requests as a session of the CPU does") {
    const Devices devices = make_devices(2);
    const auto model = model_placed(machine_of({devices[0]}, {devices[1]}),
                                    {.overrides = R"(blk\.2\..*exps=sim:1)", .n_host_experts = 2});
    const Logger silent;
    engine::Engine engine(model, engine_params(), silent);
    CHECK(check_requests(engine) >= 128);
}

TEST_CASE("sessions of a model with offloaded experts may be used by several threads at once") {
    const Devices devices = make_devices(2);
    const auto model = model_placed(machine_of({devices[0]}, {devices[1]}),
                                    {.overrides = R"(blk\.0\..*exps=sim:1)", .n_host_experts = 3});
    check_threads(model);
}

TEST_CASE("the host's threads stay awake during a step of few rows that a device takes part in") {
    const auto many = std::make_shared<const ThreadPool>(2);
    const auto few = std::make_shared<const ThreadPool>(2);
    const auto host = placement::make_backend("cpu", placement::Threads{many, few}, active_cpu_level());
    const Devices devices = make_devices(1);
    const auto shared = model_placed(machine_of({devices[0]}, {}, host), {.n_host_experts = 2});
    const auto cut = model_placed(machine_of({devices[0]}, {}, host), {.n_device_layers = 1});
    const auto alone = model_placed(machine_of({}, {}, host));
    // The pools that were kept awake at some layer of a step, as bits.
    const auto awake_in_step = [&](const model::Model& model, int64_t n_rows, bool fails) {
        kv::Sequence cache(engine::make_pool(model, {}, {}), n_rows);
        cache.hold(0, n_rows);
        runtime::StepSpace space(model.placement().stages(), model::shape_of(model.config()), n_rows, n_rows);
        std::vector<runtime::StepRow> rows;
        for (int64_t i = 0; i < n_rows; ++i) rows.push_back({5, {&cache.view(), i}, true});
        std::vector<float> logits(static_cast<size_t>(n_rows * model.config().n_vocab));
        int seen = 0;
        const auto observer = [&](int64_t layer, int64_t, const float*, const int32_t*, const float*) {
            if (many->is_kept_awake()) seen |= 1;
            if (few->is_kept_awake()) seen |= 2;
            if (fails && layer == 1) fail(Status::cancelled, "enough");
        };
        const auto step = [&] { model.forward().step(rows, space, logits.data(), nullptr, observer); };
        if (fails) {
            expect_error(Status::cancelled, "enough", step);
        } else {
            step();
        }
        CHECK_FALSE(many->is_kept_awake());
        CHECK_FALSE(few->is_kept_awake());
        return seen;
    };
    for (const bool fails : {false, true}) {
        for (const auto& model : {shared, cut}) {
            CHECK(awake_in_step(*model, 1, fails) == 2);
            CHECK(awake_in_step(*model, 20, fails) == 1);
            CHECK(awake_in_step(*model, 100, fails) == 0);
        }
        CHECK(awake_in_step(*alone, 1, fails) == 0);
    }
}

TEST_CASE("sessions that come and go take the memory for offloaded experts once") {
    const Devices devices = make_devices(2);
    const auto model = model_placed(machine_of({devices[0]}, {devices[1]}),
                                    {.overrides = R"(blk\.0\..*exps=sim:1)", .n_host_experts = 3});
    const std::vector<float> expected = logits_on(model_on_cpu(), some_ids(40), 40);
    std::vector<int64_t> taken;
    for (int i = 0; i < 20; ++i) {
        CHECK(logits_on(model, some_ids(40), 40) == expected);
        if (i == 0)
            for (const auto& device : devices) taken.push_back(device->n_blocks_taken());
    }
    for (size_t i = 0; i < devices.size(); ++i) CHECK(devices[i]->n_blocks_taken() == taken[i]);
}

}  // namespace minim::test
