// SPDX-License-Identifier: Apache-2.0
// Tests devices that fail or are too small while experts are offloaded: the error is clear, and all memory is given
// back.
#include "backend/device_memory.h"
#include "base/error.h"
#include "sim/devices.h"
#include "sim/placement_checks.h"
#include "support/catch.h"
#include "support/helpers.h"

namespace minim::test {
namespace {

// Opens a model with the layers on the first device; of their experts one layer's on the CPU and the others on the second device.
std::shared_ptr<const model::Model> model_apart(const Devices& devices,
                                                const model::OpenOptions& options = {}) {
    return model_placed(machine_of({devices[0]}, {devices[1]}),
                        {.overrides = R"(blk\.[12]\..*exps=sim:1)", .n_host_experts = 1}, options);
}

// Evaluates n tokens. If that fails, the session must still have the tokens that it had before.
void talk(engine::Session& session, size_t n) {
    const int64_t n_before = session.n_tokens();
    try {
        all_logits(session, some_ids(n), n);
    } catch (const Error&) {
        CHECK(session.n_tokens() == n_before);
        throw;
    }
}

void load_and_talk(const Devices& devices) {
    const auto model = model_apart(devices);
    engine::Session session = make_session(model, 150);
    talk(session, 9);
    const auto fork = session.fork();
    talk(*fork, 1);
}

Devices with(size_t failing, const sim::Options& options, bool peers) {
    Devices devices;
    for (size_t i = 0; i < 2; ++i) {
        sim::Options own = i == failing ? options : sim::Options();
        own.reaches_peers = peers;
        devices.push_back(std::make_shared<const sim::SimBackend>(static_cast<int32_t>(i), own));
    }
    return devices;
}

}  // namespace

TEST_CASE(
    "a failure of the layers' or of the experts' device is an error wherever it comes, and nothing stays") {
    for (const size_t device : {0, 1}) {
        for (const bool peers : {true, false}) {
            CAPTURE(device, peers);
            const Failures failures = fail_at_each(
                "sim:" + std::to_string(device),
                [&](const sim::Options& options) { return with(device, options, peers); }, load_and_talk);
            CHECK(failures.allocations >= 3);  // weights, two sessions' activations
            // Two steps have these copies: x and routing for each layer's experts, and x back.
            CHECK(failures.transfers >= 2 * 2 * 2);
            CHECK(failures.operations >= 2 * 2 * 4);
        }
    }
}

TEST_CASE(
    "after a step whose allocation failed, a session with offloaded experts goes on as if nothing had been") {
    // Weights, KV cache and activations of a session fit; the activations of the next session do not.
    for (const size_t failing : {0, 1}) {
        int64_t n_used = 0;
        {
            const Devices devices = with(failing, {}, true);
            const auto model = model_apart(devices);
            const engine::Session session = make_session(model, 150);
            n_used = devices[failing]->counts().allocations;
        }
        const Devices devices = with(failing, {.failing_allocation = n_used + 1}, true);
        const auto model = model_apart(devices);
        engine::Session session = make_session(model, 150);
        engine::Session expected = make_session(model_on_cpu(), 150);
        CHECK(all_logits(session, some_ids(30), 30) == all_logits(expected, some_ids(30), 30));
        const auto used = devices[failing]->memory().used();
        expect_error(Status::out_of_device_memory, "sim:" + std::to_string(failing),
                     [&] { make_session(model, 150); });
        CHECK(devices[failing]->memory().used() == used);
        CHECK(all_logits(session, some_ids(9, 4), 9) == all_logits(expected, some_ids(9, 4), 9));
        engine::Session second = make_session(model, 150);
        expected.truncate(0);
        CHECK(all_logits(second, some_ids(30), 7) == all_logits(expected, some_ids(30), 30));
    }
}

TEST_CASE("a device too small for its part of the model, or of a session, says so with the figures") {
    const Devices unlimited = make_devices(2);
    load_and_talk(unlimited);
    for (const size_t small : {0, 1}) {
        const uint64_t most = unlimited[small]->most_used_bytes();
        std::string why;
        int n_refused = 0;
        for (uint64_t bytes = 4096; bytes < most; bytes += most / 24) {
            const Devices devices = with(small, {.budget_bytes = bytes}, true);
            try {
                load_and_talk(devices);
            } catch (const Error& error) {
                ++n_refused;
                CHECK(error.status() == Status::out_of_device_memory);
                CHECK(error.facts().requested > error.facts().available);
                why += error.what();
            }
            CHECK(is_empty(devices));
        }
        CHECK(n_refused >= 20);
        CHECK(why.find("sim:" + std::to_string(small) + ": ") != std::string::npos);
        CHECK(why.find("bytes for weights needed") != std::string::npos);
    }
}

TEST_CASE("a device without kernels for the experts' format is refused only where it has experts") {
    const Devices devices = {
        std::make_shared<const sim::SimBackend>(0, sim::Options{}),
        std::make_shared<const sim::SimBackend>(1, sim::Options{.without = Format::q8_0})};
    expect_error(Status::unsupported, "sim:1: does not compute with weights of Q8_0",
                 [&] { model_apart(devices); });
    CHECK(is_empty(devices));
}

TEST_CASE("loading with offloaded experts reports its progress and can be cancelled at any point") {
    const Devices devices = make_devices(2);
    check_cancelled_loads(devices, [&](const auto& options) { return model_apart(devices, options); });
}

TEST_CASE("cancelling an evaluation with offloaded experts leaves the session as it was") {
    const Devices devices = make_devices(2);
    check_cancelled_evaluation(model_apart(devices));
}

}  // namespace minim::test
