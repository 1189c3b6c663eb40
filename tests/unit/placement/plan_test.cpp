// SPDX-License-Identifier: Apache-2.0
// Plans for a model of 10 layers: 1 MiB of dense weights and 16 experts of 1 MiB each a layer.
#include "placement/plan.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "base/json.h"
#include "model/roles.h"
#include "placement/predict.h"
#include "support/catch.h"
#include "support/helpers.h"

using namespace minim;
using namespace minim::test;
using namespace minim::placement;
using model::Role;

namespace {

constexpr uint64_t k_mib = uint64_t{1} << 20;
constexpr uint64_t k_gib = uint64_t{1} << 30;
constexpr int64_t k_layers = 10;
constexpr int64_t k_experts = 16;

model::Config config_of_model() {
    model::Config config;
    config.n_layer = k_layers;
    config.hidden = 1024;
    config.n_head = 8;
    config.n_head_kv = 2;
    config.head_dim = 128;
    config.n_expert = k_experts;
    config.n_expert_used = 4;
    config.expert_ff = 512;
    config.n_vocab = 1024;
    return config;
}

std::vector<weights::WeightSpec> weights_of_model(uint64_t expert_bytes) {
    std::vector<weights::WeightSpec> all;
    const auto add = [&](Role role, int64_t layer, int64_t expert, uint64_t bytes) {
        all.push_back({.role = static_cast<int32_t>(role),
                       .layer = static_cast<int32_t>(layer),
                       .expert = static_cast<int32_t>(expert),
                       .use = weights::Use::product,
                       .rows = 1,
                       .row_bytes = static_cast<int64_t>(bytes)});
    };
    add(Role::embedding, -1, -1, 3 * k_mib);
    for (int64_t layer = 0; layer < k_layers; ++layer) {
        add(Role::wq, layer, -1, k_mib);
        for (int64_t e = 0; e < k_experts; ++e) add(Role::gate, layer, e, expert_bytes);
    }
    add(Role::output, -1, -1, 2 * k_mib);
    return all;
}

// Returns devices named a:0, a:1 ... with these GiB.
std::vector<DeviceFacts> devices_of(const std::vector<double>& gib, double bandwidth = 1e12) {
    std::vector<DeviceFacts> devices;
    devices.reserve(gib.size());
    for (const double size : gib)
        devices.push_back({"a:" + std::to_string(devices.size()),
                           static_cast<uint64_t>(size * static_cast<double>(k_gib)), bandwidth, 25e9});
    return devices;
}

struct Case {
    model::Config config = config_of_model();
    std::vector<weights::WeightSpec> weights = weights_of_model(64 * k_mib);
    std::vector<DeviceFacts> devices = {};
    HostFacts host = {64 * k_gib, 1e11, false};
    int64_t n_context = 1024;
    int64_t n_sequences = 1;
    std::string overrides = {};
    std::vector<double> shares = {};
    int64_t n_ubatch = 512;

    Plan plan() const {
        Request request = {.shares = shares,
                           .n_context = n_context,
                           .n_sequences = n_sequences,
                           .n_rows = n_ubatch,
                           .cache_bytes = k_cache_all_room};
        if (!overrides.empty()) request.overrides = overrides;
        return make_plan(request, {.devices = devices, .host = host}, config, weights);
    }
};

int64_t experts_on_devices(const Plan& plan) {
    return std::accumulate(plan.devices().begin(), plan.devices().end(), int64_t{0},
                           [](int64_t n, const PlannedPlace& place) { return n + place.n_experts; });
}

bool says(const Plan& plan, const std::string& part) {
    return std::ranges::any_of(plan.choices,
                               [&](const std::string& text) { return text.find(part) != std::string::npos; });
}

}  // namespace

TEST_CASE("bytes are those of the weights, wherever they lie") {
    for (const std::vector<double>& gib :
         {std::vector<double>{}, {3.0}, {24.0}, {4.0, 2.0}, {6.0, 6.0, 6.0}}) {
        const Case c = {.devices = devices_of(gib)};
        const Plan plan = c.plan();
        REQUIRE(plan.fits);
        uint64_t dense = plan.host().dense_bytes;
        uint64_t experts = plan.host().expert_bytes;
        uint64_t kv = plan.host().kv_bytes;
        for (size_t d = 0; d < plan.devices().size(); ++d) {
            const PlannedPlace& place = plan.devices()[d];
            dense += place.dense_bytes;
            experts += place.expert_bytes;
            kv += place.kv_bytes;
            CHECK(place.expert_bytes == static_cast<uint64_t>(place.n_experts) * 64 * k_mib);
            CHECK(place.dense_bytes + place.expert_bytes + place.kv_bytes + place.work_bytes +
                      place.free_bytes <=
                  c.devices[d].memory_bytes);
        }
        CHECK(dense == (3 + 10 + 2) * k_mib);
        // Experts that a device caches stay in host memory.
        const uint64_t all = uint64_t{k_layers * k_experts} * 64 * k_mib;
        CHECK((plan.host().expert_bytes == all || experts == all));
        CHECK(kv == uint64_t{1024} * k_layers * 2 * 2 * 128 * 2);  // K and V, 2 heads, F16
        CHECK(plan.token_dense_bytes == (10 + 2) * k_mib);
        CHECK(plan.token_expert_bytes == uint64_t{k_layers * 4} * 64 * k_mib);
        CHECK(plan.token_kv_bytes == kv);
    }
}

TEST_CASE("experts stay on devices if all fit, else the host has all and devices a cache") {
    const Case roomy = {.devices = devices_of({8.0, 8.0})};
    CHECK(experts_on_devices(roomy.plan()) == k_layers * k_experts);
    CHECK(roomy.plan().devices()[0].n_layers == 5);
    CHECK(roomy.plan().devices()[1].n_layers == 5);
    CHECK(roomy.plan().host().expert_bytes == 0);

    const Case tight = {.devices = devices_of({4.0})};
    const Plan plan = tight.plan();
    CHECK(plan.devices()[0].n_layers == k_layers);
    CHECK(plan.devices()[0].n_experts > 3 * k_experts);
    CHECK(plan.devices()[0].n_experts < 4 * k_experts);
    CHECK(std::ranges::count(plan.expert_place, 1) == k_layers);
    CHECK(plan.host().n_experts == k_layers * k_experts);
    CHECK(says(plan, "a cache of " + std::to_string(plan.devices()[0].n_experts) + " experts"));
    CHECK(says(plan, "160 of 160 experts"));
    CHECK(plan.decode_seconds.overlap == plan.decode_seconds.device_experts);

    // The host has no room for all experts: those of the last layers are on the device alone.
    const Case short_host = {.devices = devices_of({4.0}), .host = {8 * k_gib, 1e11, false}};
    const Plan other = short_host.plan();
    CHECK(other.fits);
    CHECK(other.devices()[0].n_experts == 3 * k_experts);
    CHECK(other.expert_place.front() == 1);
    CHECK(other.expert_place.back() == 0);
    CHECK(other.host().n_experts == 7 * k_experts);
    CHECK(says(other, "112 of 160 experts"));
    CHECK(other.decode_tokens_per_second < plan.decode_tokens_per_second);
}

TEST_CASE("faster devices get layers first, equal ones alike") {
    Case c = {.devices = devices_of({24.0, 24.0})};
    c.devices[1].bytes_per_second = 2e12;
    CHECK(c.plan().devices()[1].n_layers == k_layers);
    c.devices[1].bytes_per_second = 1e12;
    CHECK(c.plan().devices()[1].n_layers == 5);

    // What is measured differs from run to run.
    for (DeviceFacts& device : c.devices) device.is_measured = true;
    c.devices[1].bytes_per_second = 1.05e12;
    CHECK(c.plan().devices()[1].n_layers == 5);
    c.devices[1].bytes_per_second = 1.2e12;
    CHECK(c.plan().devices()[1].n_layers == k_layers);
}

TEST_CASE("more memory and bandwidth never make decoding slower, more context never faster") {
    Case c = {.devices = devices_of({3.0, 2.0})};
    double before = 0.0;
    for (uint64_t quarters = 8; quarters < 36; ++quarters) {
        c.devices[1].memory_bytes = quarters * k_gib / 4;
        const Plan plan = c.plan();
        const double now = plan.decode_tokens_per_second;
        // Without experts on the host, its bandwidth adds nothing any more.
        CHECK(now >= (plan.host().n_experts == 0 ? 0.9 : 0.99) * before);
        before = now;
    }
    for (int step = 0; step < 12; ++step) {
        c.devices[0].bytes_per_second = 2e11 * std::pow(1.3, step);
        const double now = c.plan().decode_tokens_per_second;
        if (step > 0) CHECK(now >= 0.99 * before);
        before = now;
    }
    c.n_ubatch = 0;
    c.n_context = 16384;
    for (int step = 0; step < 21; ++step) {
        for (DeviceFacts& device : c.devices) device.link_bytes_per_second = 1e9 * std::pow(1.3, step);
        const double now = c.plan().decode_tokens_per_second;
        if (step > 0) CHECK(now >= 0.99 * before);
        before = now;
    }
    c.n_ubatch = 512;
    c.n_context = 1024;
    before = c.plan().decode_tokens_per_second;
    for (const int64_t context : {2048, 8192, 65536, 262144}) {
        c.n_context = context;
        const double now = c.plan().decode_tokens_per_second;
        CHECK(now <= 1.01 * before);
        before = now;
    }
}

TEST_CASE("a memory that a device shares with the host is counted once") {
    // The model: 10 GiB of experts, and some MiB.
    constexpr uint64_t k_experts_bytes = uint64_t{k_layers * k_experts} * 64 * k_mib;
    Case c = {.devices = devices_of({12.0}), .host = {12 * k_gib, 1e12, false}};
    c.devices[0].is_unified = true;
    c.devices[0].link_bytes_per_second = 0.0;
    const Plan fitting = c.plan();
    CHECK(fitting.fits);
    CHECK(fitting.is_unified);
    CHECK(fitting.devices()[0].expert_bytes == k_experts_bytes);
    CHECK(fitting.host().expert_bytes == 0);
    CHECK(fitting.devices()[0].free_bytes == fitting.host().free_bytes);
    CHECK(fitting.used_bytes() == fitting.devices()[0].dense_bytes + k_experts_bytes +
                                      fitting.devices()[0].kv_bytes + fitting.devices()[0].work_bytes +
                                      fitting.host().work_bytes);
    CHECK(fitting.used_bytes() + fitting.host().free_bytes == 11 * k_gib);  // one reserve: a twelfth
    CHECK(says(fitting, "a:0 shares the host's memory"));
    const std::string json = to_json(fitting);
    CHECK(json.find(R"("unified": true)") != std::string::npos);
    CHECK(json.find("\"used_bytes\": " + std::to_string(fitting.used_bytes())) != std::string::npos);

    // A device of 8 GiB beside a host of 8 GiB has room; one memory of 8 GiB for both has not.
    c.devices[0].memory_bytes = c.host.memory_bytes = 8 * k_gib;
    const Plan lacking = c.plan();
    CHECK_FALSE(lacking.fits);
    CHECK(lacking.devices()[0].n_layers == k_layers);  // the CPU would take no less of the memory
    CHECK(lacking.host().expert_bytes == 0);
    CHECK(says(lacking, "a:0 and the host, in one memory: does not fit"));
    CHECK(says(lacking, "more memory would do"));
    CHECK_FALSE(says(lacking, "on devices"));
    Case two = c;
    two.devices[0].is_unified = false;
    CHECK(two.plan().fits);
    CHECK_FALSE(two.plan().is_unified);

    // Layers of the CPU are in the same memory.
    c.devices[0].memory_bytes = c.host.memory_bytes = 12 * k_gib;
    Request request = {
        .n_device_layers = 4, .n_context = 1024, .n_rows = 512, .cache_bytes = k_cache_all_room};
    const auto part = [&] {
        return make_plan(request, {.devices = c.devices, .host = c.host}, c.config, c.weights);
    };
    CHECK(part().fits);
    CHECK(part().host().n_layers == 6);
    CHECK(part().host().expert_bytes + part().devices()[0].expert_bytes == k_experts_bytes);
    CHECK(part().host().free_bytes == part().devices()[0].free_bytes);
    CHECK(part().used_bytes() + part().host().free_bytes == 11 * k_gib);
}

TEST_CASE("nothing is offloaded beside a device that shares the host's memory") {
    Case c = {.devices = devices_of({12.0}), .host = {12 * k_gib, 1e12, false}};
    c.devices[0].is_unified = true;
    const auto refuses = [&](const Request& request, const char* part) {
        expect_error(Status::unsupported, part, [&] {
            make_plan(request, {.devices = c.devices, .host = c.host}, c.config, c.weights);
        });
    };
    refuses({.n_host_experts = 3, .n_context = 1024},
            "n_host_experts (3) keeps experts on the CPU, but a:0 shares");
    refuses({.overrides = "exps=CPU", .n_context = 1024},
            "override exps=CPU keeps experts on the CPU, but a:0 shares");
    refuses({.n_context = 1024, .cache_bytes = k_gib}, "expert_cache_bytes (1073741824) asks for a cache");
    c.devices.push_back({"a:1", 12 * k_gib, 1e12, 25e9});
    refuses({.n_context = 1024}, "a:0 shares the host's memory, so it must be the only device; 2 are named");
}

TEST_CASE("the parts of a token's time make its time") {
    const Plan plan = Case{.devices = devices_of({4.0, 2.0})}.plan();
    CHECK(std::abs(plan.decode_seconds.total() * plan.decode_tokens_per_second - 1.0) < 1e-9);
    CHECK(plan.decode_seconds.host_experts > 0.0);
    CHECK(plan.decode_seconds.device_experts > 0.0);
    CHECK(plan.decode_seconds.hand_over > 0.0);
    CHECK(Case().plan().decode_seconds.hand_over == 0.0);
}

TEST_CASE("rules and shares are kept to") {
    Case c = {.devices = devices_of({24.0, 24.0})};
    c.overrides = "exps=CPU";
    CHECK(experts_on_devices(c.plan()) == 0);
    CHECK(c.plan().host().n_experts == k_layers * k_experts);
    c.overrides = R"(blk\.[0-3]\.ffn_.*_exps=a:1,exps=cpu)";
    CHECK(c.plan().devices()[1].n_experts == 4 * k_experts);
    CHECK(c.plan().devices()[0].n_experts == 0);
    c.overrides = "";
    c.shares = {7, 3};
    CHECK(c.plan().devices()[0].n_layers == 7);
    c.shares = {1, 4};
    CHECK(c.plan().devices()[1].n_layers == 8);

    c.shares = {};
    c.overrides = "exps=a:7";
    expect_error(Status::invalid, "device 'a:7' is not in the plan", [&] { c.plan(); });
    c.overrides = "nothing=cpu";
    expect_error(Status::invalid, "nothing", [&] { c.plan(); });
    c.overrides = "ffn_up_exps=cpu";
    expect_error(Status::unsupported,
                 "experts of layer 0 would be on a:0 and on cpu (blk.0.ffn_up_exps.weight)",
                 [&] { c.plan(); });
    c.overrides = "attn_q=cpu";
    expect_error(Status::unsupported, "blk.0.attn_q.weight stays on a:0 with its layer", [&] { c.plan(); });
}

TEST_CASE("layers that no rule names are planned as without rules, also where they share their experts") {
    Case c = {.devices = devices_of({3.0})};
    const double cached = c.plan().cached_part[5];
    CHECK((cached > 0.0 && cached < 1.0));
    c.overrides = R"(blk\.(0|1)\..*exps=CPU)";
    Plan plan = c.plan();
    CHECK(plan.cached_part[0] == 0.0);
    CHECK(plan.cached_part[1] == 0.0);
    for (size_t layer = 2; layer < k_layers; ++layer) CHECK(plan.cached_part[layer] > cached);
    CHECK(plan.host().n_experts == k_layers * k_experts);
    CHECK(says(plan, "a cache of "));

    // The experts of one layer are on the device alone; the cache has the rest of the room.
    c.overrides = R"(blk\.7\..*exps=a:0)";
    plan = c.plan();
    CHECK(plan.expert_place[7] == 0);
    CHECK(plan.cached_part[7] == 0.0);
    CHECK(plan.cached_part[6] > 0.0);
    CHECK(plan.cached_part[6] < cached);
    CHECK(plan.host().n_experts == (k_layers - 1) * k_experts);
    CHECK(plan.devices()[0].expert_bytes == static_cast<uint64_t>(plan.devices()[0].n_experts) * 64 * k_mib);

    // A host without room for all experts keeps those of whole layers, which include the layers that rules put there.
    c.overrides = R"(blk\.9\..*exps=cpu)";
    c.host.memory_bytes = 9 * k_gib;
    plan = c.plan();
    CHECK(plan.fits);
    CHECK(plan.expert_place[9] == 1);
    CHECK(plan.expert_place[8] == 0);
    CHECK(plan.expert_place[0] == 1);
    CHECK(plan.cached_part[0] == 0.0);

    // One of these devices has room for the experts of its layers, the other has not.
    c = {.devices = devices_of({12.0, 1.0}), .shares = {5, 5}};
    c.overrides = R"(blk\.(0|6)\..*exps=cpu)";
    plan = c.plan();
    for (size_t layer = 1; layer < 5; ++layer) CHECK(plan.expert_place[layer] == 0);
    for (const size_t layer : {5, 7, 8, 9}) CHECK(plan.cached_part[layer] > 0.0);
    for (const size_t layer : {0, 6})
        CHECK((plan.expert_place[layer] == 2 && plan.cached_part[layer] == 0.0));

    // A rule for one matrix of a layer would put it on another device than the layer's other expert matrices.
    for (const char* rule : {R"(blk\.3\.ffn_up_exps=cpu)", R"(blk\.3\.ffn_up_exps=a:1,exps=cpu)"}) {
        c.overrides = rule;
        expect_error(Status::unsupported, "experts of layer 3 would be on ", [&] { c.plan(); });
    }
}

TEST_CASE("a cache of a given size is divided among the layers that share it") {
    std::vector<DeviceFacts> devices = devices_of({8.0, 8.0});
    for (DeviceFacts& device : devices) device.link_bytes_per_second = 0.0;  // steps copy no experts
    Request request = {.shares = {5, 5},
                       .n_host_experts = 5,
                       .n_context = 1024,
                       .cache_bytes = k_gib,
                       .caches_host_experts = true};
    const auto plan = [&] {
        return make_plan(request, {.devices = devices, .host = {64 * k_gib, 1e11, false}}, config_of_model(),
                         weights_of_model(64 * k_mib));
    };
    // The second device has all experts of its layers, and no cache.
    CHECK(plan().devices()[0].n_experts == 15);  // of 16, beside tables and outputs
    CHECK(plan().devices()[1].n_experts == 5 * k_experts);
    request.n_host_experts = k_layers;
    CHECK(plan().devices()[0].n_experts == 7);
    CHECK(plan().devices()[1].n_experts == 7);
}

TEST_CASE("matrices that no override names are with the host if their layer is") {
    Request request = {.overrides = R"(blk\.0\.ffn_up_exps=cpu)", .n_host_experts = 1, .n_context = 1024};
    const auto plan = [&] {
        return make_plan(request, {.devices = devices_of({24.0}), .host = {64 * k_gib, 1e11, false}},
                         config_of_model(), weights_of_model(64 * k_mib));
    };
    CHECK(plan().expert_place.front() == 1);
    request.n_host_experts = 0;
    expect_error(Status::unsupported,
                 "experts of layer 0 would be on a:0 and on cpu (blk.0.ffn_up_exps.weight)", [&] { plan(); });
}

TEST_CASE("a plan that does not fit says what would") {
    Case c = {.devices = devices_of({24.0}), .host = {4 * k_gib, 1e11, false}};
    c.n_context = 4'000'000;
    const Plan plan = c.plan();
    CHECK_FALSE(plan.fits);
    CHECK(says(plan, "a context of "));
    CHECK(says(plan, "GiB more memory would do"));

    c.n_context = 1024;
    c.overrides = "exps=cpu";
    CHECK_FALSE(c.plan().fits);
    CHECK(says(c.plan(), "host: does not fit"));
    c.overrides = "exps=a:0";
    c.devices = devices_of({4.0});
    CHECK_FALSE(c.plan().fits);
    CHECK(says(c.plan(), "a:0: does not fit"));
}

TEST_CASE("what the host reads takes as long as its kernels need for the format") {
    Case c;
    for (weights::WeightSpec& weight : c.weights)
        if (weight.is_expert()) weight.format = Format::iq3_s;
    c.host.is_measured = true;
    const Plan plain = c.plan();
    c.host.rates = {{Format::iq3_s, 2e10}};
    const Plan slower = c.plan();
    const double read = static_cast<double>(k_layers * 4 * 64 * k_mib);  // 4 of 16 experts
    CHECK(std::abs(plain.decode_seconds.host_experts - read / 0.93e11) < 1e-9);
    CHECK(std::abs(slower.decode_seconds.host_experts - read / 2e10) < 1e-9);
    CHECK(slower.decode_seconds.dense == plain.decode_seconds.dense);

    // The slower the host, the larger the part of the experts that a device caches.
    c.weights = weights_of_model(16 * k_mib);
    c.devices = devices_of({2.0}, 5e10);
    const Plan even = c.plan();
    c.host.rates = {{c.weights.front().format, 2e10}};
    const Plan more = c.plan();
    REQUIRE(even.cached_part[0] > 0.0);
    CHECK(more.cached_part[0] > even.cached_part[0]);
}

TEST_CASE("an expert is copied if that is faster than computing its slots on the host") {
    const model::Config config = config_of_model();
    const HostFacts host = {64 * k_gib, 1e11, false};
    DeviceFacts device = {"a:0", 4 * k_gib, 1e12, 25e9};
    const auto slots = [&](double expert_bytes, int64_t n_rows) {
        return stream_rule(device, host, config, expert_bytes, n_rows).break_even_slots;
    };
    // 1 TFLOP/s of the host: 6 * 1024 * 512 operations for a slot take 3.1 us, a copy 40 us.
    CHECK(std::abs(slots(1e6, 512) - 40.0 / 3.1457) < 0.01);
    CHECK(std::abs(slots(2e6, 512) - 2.0 * slots(1e6, 512)) < 0.01);
    // 4 of 16 experts: 50 rows give each of them 12.5 slots.
    CHECK(std::isinf(slots(1e6, 50)));
    CHECK(std::isfinite(slots(1e6, 51)));
    device.link_bytes_per_second = 0.0;
    CHECK(std::isinf(slots(1e6, 512)));
}

TEST_CASE("prompts copy experts: faster, with areas that are part of the work space") {
    Case c = {.weights = weights_of_model(16 * k_mib), .devices = devices_of({2.5})};
    c.n_context = 16384;
    c.n_ubatch = 2048;
    const Plan plan = c.plan();
    REQUIRE(plan.fits);
    REQUIRE(plan.cached_part[0] > 0.0);
    c.devices[0].link_bytes_per_second = 1e8;  // too slow
    const Plan without = c.plan();
    CHECK(plan.prompt_tokens_per_second > 1.2 * without.prompt_tokens_per_second);
    CHECK(plan.devices()[0].work_bytes > without.devices()[0].work_bytes);
    CHECK(plan.devices()[0].work_bytes - without.devices()[0].work_bytes <= 2 * 256 * k_mib);
    CHECK(plan.devices()[0].n_experts < without.devices()[0].n_experts);
    CHECK(plan.devices()[0].n_experts + 2 * 16 + 1 >= without.devices()[0].n_experts);
    const PlannedPlace& place = plan.devices()[0];
    CHECK(place.dense_bytes + place.expert_bytes + place.kv_bytes + place.work_bytes + place.free_bytes <=
          c.devices[0].memory_bytes);
}

TEST_CASE("a plan chooses larger micro-batches if prompts copy experts and decoding does not suffer") {
    Case c = {.devices = devices_of({8.0})};
    c.n_context = 16384;
    int n_larger = 0;
    for (int quarters = 16; quarters < 48; ++quarters) {
        const double gib = quarters / 4.0;
        c.devices = devices_of({gib});
        c.devices[0].link_bytes_per_second = 1e11;
        c.n_ubatch = 512;
        const Plan at_512 = c.plan();
        c.n_ubatch = 0;
        const Plan chosen = c.plan();
        INFO(gib << " GiB");
        CHECK(at_512.n_ubatch == 512);
        CHECK(chosen.fits);
        CHECK(chosen.decode_tokens_per_second >= 0.99 * at_512.decode_tokens_per_second);
        CHECK(says(chosen, "-ub ") == (chosen.n_ubatch > 512));
        if (chosen.n_ubatch == 512) continue;
        ++n_larger;
        CHECK(chosen.cached_part[0] > 0.0);
        CHECK(chosen.prompt_tokens_per_second > 1.05 * at_512.prompt_tokens_per_second);
        CHECK(says(chosen, "-ub " + std::to_string(chosen.n_ubatch)));
    }
    CHECK(n_larger > 0);
    c.devices = devices_of({16.0});  // all experts fit
    CHECK(c.plan().n_ubatch == 512);
    c.n_ubatch = -1;
    expect_error(Status::invalid, "micro-batches of -1 rows", [&] { c.plan(); });
}

TEST_CASE("each sequence reserves its context") {
    Case c = {.devices = devices_of({24.0})};
    const uint64_t one = c.plan().devices()[0].kv_bytes;
    c.n_sequences = 5;
    CHECK(c.plan().devices()[0].kv_bytes == 5 * one);
    CHECK(c.plan().token_kv_bytes == one);
}

TEST_CASE("numbers that make no sense are refused") {
    Case c = {.devices = devices_of({24.0})};
    c.n_context = 0;
    expect_error(Status::invalid, "a context of 0 tokens", [&] { c.plan(); });
    c.n_context = 1024;
    c.n_sequences = -1;
    expect_error(Status::invalid, "-1 sequences", [&] { c.plan(); });
    c.n_sequences = 1;
    c.shares = {1, 1};
    expect_error(Status::invalid, "2 shares of the layers for 1 devices", [&] { c.plan(); });
    c.shares = {-1};
    expect_error(Status::invalid, "share of the layers is -1", [&] { c.plan(); });
    c.shares = {};
    c.devices.push_back(c.devices[0]);
    expect_error(Status::invalid, "a:0 is named twice", [&] { c.plan(); });
}

TEST_CASE("what was measured of a device's kernels replaces the estimate") {
    Case c = {.devices = devices_of({64.0})};
    for (weights::WeightSpec& weight : c.weights) weight.cols = weight.row_bytes / 4;
    const Plan estimated = c.plan();
    CHECK(says(estimated, "free; speed estimated"));
    DeviceFacts& device = c.devices.front();
    device.has_measured_kernels = true;
    device.start_seconds = 2e-6;
    const double rate = 1e11;
    device.kernels = {
        {.format = Format::f32, .experts = rate, .dense = 2.0 * rate, .expert_operations = 1e9}};
    const Plan measured = c.plan();
    CHECK(says(measured, "free; speed measured"));
    CHECK(to_json(measured).find(R"("speed": "measured")") != std::string::npos);
    // 4 of 16 experts of 64 MiB a layer, and their start, which is 5.7 / 1.3 times that of a small kernel.
    const double experts = 4.0 * 64.0 * static_cast<double>(k_mib) / rate + 2e-6 * 5.7 / 1.3;
    CHECK(measured.decode_seconds.device_experts == Approx(k_layers * experts));
    const double dense = static_cast<double>(k_mib) / (2.0 * rate) + 3.0 * 2e-6;
    CHECK(measured.decode_seconds.dense ==
          Approx(k_layers * dense + 2.0 * static_cast<double>(k_mib) / (2.0 * rate) + 2e-6));
    CHECK(measured.prompt_tokens_per_second < 0.1 * estimated.prompt_tokens_per_second);
    // A format that was not measured stays estimated beside one that was.
    c.devices.front().kernels = {{.format = Format::q8_0, .experts = 1e7}};
    CHECK(c.plan().decode_seconds.dense == Approx(estimated.decode_seconds.dense + 31.0 * (2e-6 - 1.3e-6)));
    c.devices.front().start_seconds = 0.0;
    CHECK(c.plan().decode_seconds.device_experts == estimated.decode_seconds.device_experts);
}

TEST_CASE("a plan as JSON has the keys that the C ABI documents") {
    const Plan plan = Case{.devices = devices_of({4.0})}.plan();
    const json::Value value = json::parse(to_json(plan), "plan", json::Source::argument);
    CHECK(json::find(&value, "fits")->boolean);
    const json::Value& device = json::find(&value, "devices")->items.at(0);
    CHECK(json::find(&device, "name")->is_string("a:0"));
    CHECK(json::find(&device, "speed")->is_string("estimated"));
    CHECK(json::find(json::find(&value, "host"), "speed")->is_string("estimated"));
    CHECK(json::to_int64(*json::find(&device, "n_experts")) == plan.devices()[0].n_experts);
    CHECK(json::to_int64(*json::find(json::find(&value, "host"), "expert_bytes")) ==
          static_cast<int64_t>(plan.host().expert_bytes));
    CHECK(json::find(&value, "choices")->items.size() == plan.choices.size());
}
