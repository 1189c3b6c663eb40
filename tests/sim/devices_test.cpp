// SPDX-License-Identifier: Apache-2.0
// Finding devices, opening them by name, and spreading layers over them.
#include "placement/devices.h"

#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <vector>

#include "base/error.h"
#include "model/roles.h"
#include "placement/bytes.h"
#include "placement/facts.h"
#include "placement/measure.h"
#include "placement/measure_kernels.h"
#include "placement/plugins.h"
#include "placement/predict.h"
#include "runtime/placement.h"
#include "sim/devices.h"
#include "support/catch.h"
#include "support/helpers.h"
#include "support/setting.h"
#include "support/temporary_folder.h"

namespace minim::test {
namespace {

placement::Threads threads() {
    const auto pool = std::make_shared<const ThreadPool>(1);
    return {pool, pool};
}

std::shared_ptr<const backend::Backend> open(std::string_view name) {
    return placement::open_device(name, threads(), active_cpu_level());
}

}  // namespace

TEST_CASE("devices are listed: the CPU first, then what plug-ins find, and why one is not usable") {
    const Setting folder("MINIM_PLUGIN_PATH", std::string("/nowhere::") + MINIM_SIM_FOLDER);
    const Setting sim("MINIM_SIM", "devices=3 memory=64");
    const auto devices = placement::list_devices(active_cpu_level());
    REQUIRE(devices.size() >= 5);
    CHECK(devices[0].name == "cpu");
    CHECK(devices[0].why_not.empty());
    CHECK(devices[0].memory_bytes >= devices[0].free_bytes);
    CHECK(devices[0].free_bytes > 0);
    const auto last = std::ranges::find(devices, "sim:3", &backend::DeviceInfo::name);
    REQUIRE(last != devices.end());
    CHECK(last->why_not == "it is simulated to be too old");
    CHECK((last - 1)->name == "sim:2");
    CHECK((last - 1)->why_not.empty());
    CHECK((last - 1)->memory_bytes == 64 << 20);
}

TEST_CASE("prompts copy experts to a device of this machine by measured bandwidths, the same in every run") {
    const Setting folder("MINIM_PLUGIN_PATH", MINIM_SIM_FOLDER);
    const TemporaryFolder caches;
    const Setting cache("XDG_CACHE_HOME", caches.path());
    const Logger silent;
    model::Config config;
    config.hidden = 4096;
    config.expert_ff = 2048;
    config.n_expert = 8;
    config.n_expert_used = 2;
    const auto break_even = [&](const char* name, const char* settings, double expert_bytes = 1e8) {
        const Setting sim("MINIM_SIM", settings);
        placement::Machine machine = machine_of({open(name)});
        placement::measure_machine(machine, threads().decode->n_threads(), active_cpu_level(), silent);
        return placement::stream_rule(machine.devices[0], machine.host, config, expert_bytes, 8192)
            .break_even_slots;
    };
    const double slots = break_even("sim:0", "devices=2 memory=64");
    CHECK((slots > 0.0 && slots < 2048.0));
    CHECK(break_even("sim:0", "devices=2 memory=64 bytes_per_second=1000000") == slots);  // from the cache
    const auto start = std::chrono::steady_clock::now();
    CHECK(std::isinf(break_even("sim:1", "devices=2 memory=64 bytes_per_second=300000", 1e10)));
    CHECK(std::chrono::steady_clock::now() - start <
          std::chrono::seconds(60));  // of a copy of 64 KiB at a time
    // Nothing is copied to a device that cannot be measured.
    const Setting other("XDG_CACHE_HOME", caches.path() + "/other");
    CHECK(std::isinf(break_even("sim:0", "devices=2 memory=64 failing_transfer=1")));
}

TEST_CASE("a device of this machine is measured for a plan") {
    const Setting folder("MINIM_PLUGIN_PATH", MINIM_SIM_FOLDER);
    const Setting sim("MINIM_SIM", "devices=3 memory=64");
    const TemporaryFolder caches;
    const Setting cache("XDG_CACHE_HOME", caches.path());
    const auto completed = [](std::string_view text) {
        placement::DeviceFacts facts = placement::parse_device(text);
        placement::complete_device(facts, text, threads(), active_cpu_level());
        return facts;
    };
    const placement::DeviceFacts first = completed("sim:1");
    CHECK(first.is_measured);
    CHECK(first.memory_bytes > uint64_t{60} << 20);
    CHECK(first.bytes_per_second > 1e8);
    CHECK(first.link_bytes_per_second > 1e7);
    CHECK(first.multiprocessor_hz == Approx(0.88 * 50 * 2e9));  // no card of this name is known
    // The device is not measured again. Its memory is the budget that is named.
    const placement::DeviceFacts second = completed("sim:1=5MiB");
    CHECK(second.memory_bytes == uint64_t{5} << 20);
    CHECK(second.bytes_per_second == Approx(first.bytes_per_second).epsilon(1e-6));
    // A device that is described is not opened.
    CHECK_FALSE(completed("abacus:0=5MiB,1GB/s").is_measured);
    for (const char* name : {"abacus:0", "sim:3", "sim:9=5MiB"})
        expect_error(Status::invalid,
                     std::string("device '") + name + "' has no bandwidth and is not usable here",
                     [&] { completed(name); });
}

TEST_CASE("the kernels of a device are measured for the formats of a model, once, and a plan says so") {
    const Setting folder("MINIM_PLUGIN_PATH", MINIM_SIM_FOLDER);
    const Setting sim("MINIM_SIM", "devices=2 memory=400");
    const TemporaryFolder caches;
    const Setting cache("XDG_CACHE_HOME", caches.path());
    const Logger silent;
    // Experts in Q8_0, other matrices in Q4_K, and too few of IQ4_XS to matter.
    const auto product = [](model::Role role, int32_t expert, Format format, int64_t rows) {
        return weights::WeightSpec{.role = static_cast<int32_t>(role),
                                   .layer = 0,
                                   .expert = expert,
                                   .use = weights::Use::product,
                                   .format = format,
                                   .rows = rows,
                                   .cols = 3072,
                                   .row_bytes = row_bytes(format, int64_t{3072})};
    };
    const std::vector<weights::WeightSpec> weights = {product(model::Role::gate, 0, Format::q8_0, 30000),
                                                      product(model::Role::wq, -1, Format::q4_k, 50000),
                                                      product(model::Role::wo, -1, Format::iq4_xs, 1000)};
    const auto measured = [&](std::string_view text) {
        placement::DeviceFacts facts = placement::parse_device(text);
        placement::complete_device(facts, text, threads(), active_cpu_level());
        placement::measure_kernels(facts, text, weights, threads(), active_cpu_level(), silent);
        return facts;
    };
    const placement::DeviceFacts first = measured("sim:1");
    CHECK(first.has_measured_kernels);
    CHECK((first.start_seconds > 1e-8 && first.start_seconds < 1e-2));
    REQUIRE(first.kernels.size() == 2);
    for (const placement::KernelRates& rates : first.kernels) {
        INFO(traits(rates.format).name);
        const bool is_expert = rates.format == Format::q8_0;
        CHECK((is_expert || rates.format == Format::q4_k));
        CHECK((rates.experts > 1e7) == is_expert);
        CHECK((rates.expert_operations > 1e8) == is_expert);
        CHECK((rates.dense > 1e7) == !is_expert);
    }
    const auto cached = [&](std::string_view what) {
        for (const auto& file : std::filesystem::directory_iterator(caches / "minim"))
            if (file.path().filename().string().find(what) != std::string::npos) return file.path();
        FAIL("nothing cached for " << what);
        return std::filesystem::path();
    };
    // What the device computes with is what was measured, not the estimate, and it is not measured again.
    std::ofstream(cached("experts-Q8_0-sim-simulated_accelerator")) << "12345678\n";
    std::ofstream(cached("start-sim-simulated_accelerator")) << "1000\n";
    const placement::DeviceFacts second = measured("sim:0");
    CHECK(second.start_seconds == 1e-3);
    CHECK(std::ranges::find(second.kernels, Format::q8_0, &placement::KernelRates::format)->experts ==
          12345678.0);
    const placement::FormatPart experts = {Format::q8_0, 1e9, 1e9, 1e6};
    CHECK(placement::experts_rate(second, {&experts, 1}) == Approx(12345678.0));
    CHECK(placement::dense_start_seconds(second) == 1e-3);
    const placement::FormatPart other = {Format::q5_k, 1e9, 1e9, 1e6};
    CHECK(placement::experts_rate(second, {&other, 1}) > 1e8);

    // A device that fails, or without room, stays estimated.
    const Setting none("XDG_CACHE_HOME", caches.path() + "/other");
    const Setting small("MINIM_SIM", "devices=2 memory=64");
    const placement::DeviceFacts third = measured("sim:0");
    CHECK(third.is_measured);
    CHECK_FALSE(third.has_measured_kernels);
    CHECK(third.kernels.empty());
}

TEST_CASE("a device is opened by its name, or it is said why not") {
    const Setting folder("MINIM_PLUGIN_PATH", MINIM_SIM_FOLDER);
    CHECK(open("cpu")->name() == "cpu");
    CHECK(open("reference")->name() == "reference");
    CHECK(open("sim:1")->name() == "sim:1");
    CHECK_FALSE(open("sim:1")->uses_host_memory());
    expect_error(Status::unsupported, "device sim:2: it is simulated to be too old", [] { open("sim:2"); });
    expect_error(Status::not_found, "device sim:9: there are 3 devices", [] { open("sim:9"); });
    expect_error(Status::not_found,
                 "device abacus:0: no plug-in libminim-abacus.so in " MINIM_SIM_FOLDER ", ",
                 [] { open("abacus:0"); });
    // The folder of the library's own plug-ins has the version of the ABI in its name.
    expect_error(Status::not_found, "/minim-0", [] { open("abacus:0"); });
    for (const char* name :
         {"", "abacus", "sim", "sim:", "sim:x", "sim:1x", "sim:-1", ":0", "../sim:0", "sim:99999999999"})
        expect_error(Status::invalid, "is not a device name", [&] { open(name); });
}

TEST_CASE("a plug-in that is none, or no library at all, is refused with its path and listed as not usable") {
    const TemporaryFolder folder;
    std::ofstream(folder / "libminim-broken.so") << "no library";
    const Setting path("MINIM_PLUGIN_PATH", std::string(folder / "."));
    expect_error(Status::unsupported, "libminim-broken.so cannot be loaded: ", [] { open("broken:0"); });
    const auto devices = placement::list_devices(active_cpu_level());
    const auto broken = std::ranges::find(devices, "broken", &backend::DeviceInfo::name);
    REQUIRE(broken != devices.end());
    CHECK(broken->why_not.find("cannot be loaded") != std::string::npos);
    CHECK(placement::plugin_kinds().front() == "broken");
}

TEST_CASE("a model runs on a plug-in's devices, and what fails there arrives as an error") {
    const Setting folder("MINIM_PLUGIN_PATH", MINIM_SIM_FOLDER);
    const auto load = [&] { return model_placed(machine_of({open("sim:0"), open("sim:1")})); };
    engine::Session expected = make_session(model_on_cpu(), 100);
    {
        const auto model = load();
        CHECK(to_string(model->placement()) == "sim:0 (layers 0-1), sim:1 (layer 2)");
        engine::Session session = make_session(model, 100);
        CHECK(all_logits(session, some_ids(50), 50) == all_logits(expected, some_ids(50), 50));
    }
    {
        const Setting sim("MINIM_SIM", "memory=1");
        expect_error(Status::out_of_device_memory, "sim:0", [&] { load(); });
    }
    const Setting sim("MINIM_SIM", "failing_operation=40");
    engine::Session session = make_session(load(), 100);
    expect_error(Status::device_lost, "sim:", [&] {
        for (int i = 0; i < 50; ++i) all_logits(session, {1}, 1);
    });
}

TEST_CASE("layers go to the devices in the order and the shares asked for, the rest stays with the host") {
    const Devices devices = make_devices(2);
    model::Config config;
    config.n_layer = 10;
    std::vector<weights::WeightSpec> shapes = shapes_of_layers(10);
    const auto counts = [&](placement::Request request, ptrdiff_t n_devices = 2) {
        std::string text;
        const placement::Machine machine = machine_of({devices.begin(), devices.begin() + n_devices});
        const runtime::Placement placement = placement::place_on(machine, std::move(request))(config, shapes);
        for (const runtime::Stage& stage : placement.stages())
            text += std::string(stage.backend->name()) + "=" + std::to_string(stage.n_layer) + " ";
        return text;
    };
    CHECK(counts({}) == "sim:0=5 sim:1=5 ");
    CHECK(counts({.shares = {4, 1}}) == "sim:0=8 sim:1=2 ");
    CHECK(counts({.n_device_layers = 4}) == "cpu=6 sim:0=2 sim:1=2 ");
    CHECK(counts({.n_device_layers = 99}) == "sim:0=5 sim:1=5 ");
    CHECK(counts({}, 0) == "cpu=10 ");
    // By bytes: the first layer weighs as much as ten others. A rule is checked against the device on which its layer
    // is placed.
    shapes[0].rows *= 10;
    CHECK(counts({}) == "sim:0=1 sim:1=9 ");
    CHECK(counts({.overrides = R"(blk\.2\.attn_q=sim:1)"}) == "sim:0=1 sim:1=9 ");
    expect_error(Status::unsupported, "stays on sim:1 with its layer",
                 [&] { counts({.overrides = R"(blk\.2\.attn_q=sim:0)"}); });
    expect_error(Status::invalid, "1 shares of the layers for 2 devices", [&] { counts({.shares = {1}}); });
    expect_error(Status::invalid, "-5 layers", [&] { counts({.n_device_layers = -5}); });
}

}  // namespace minim::test
