// SPDX-License-Identifier: Apache-2.0
// Tests the bytes of a step on each device, as a plan counts them, against those that a step's buffers take.
#include "backend/device_memory.h"
#include "base/error.h"
#include "runtime/step_space.h"
#include "sim/devices.h"
#include "support/catch.h"
#include "support/helpers.h"

namespace minim::test {
namespace {

using Backends = std::vector<std::shared_ptr<const backend::Backend>>;

constexpr int64_t k_step_context = 700;
constexpr backend::StepLimits k_shape = {.hidden = 96,
                                         .n_head = 6,
                                         .n_head_kv = 2,
                                         .head_dim = 32,
                                         .n_expert = 5,
                                         .n_expert_used = 2,
                                         .expert_ff = 64,
                                         .n_vocab = 500};

// Stages over some of four devices: two of the host, then two with memory of their own.
using Arrange = std::function<std::vector<runtime::Stage>(const Backends&)>;

void check_bytes(const Arrange& arrange, int64_t n_rows, bool makes_top_k) {
    const Devices devices = make_devices(2, {.makes_top_k = makes_top_k});
    const Backends all = {cpu_backend(), cpu_backend(), devices[0], devices[1]};
    const std::vector<runtime::Stage> stages = arrange(all);
    const auto bytes = runtime::step_bytes(stages, k_shape, n_rows, k_step_context);
    for (const auto& device : all) CHECK(device->memory().used() == 0);
    for (const auto& device : devices) CHECK(device->counts().allocations == 0);
    const runtime::StepSpace space(stages, k_shape, n_rows, k_step_context);
    for (size_t d = 0; d < all.size(); ++d) {
        INFO("device " << d << ", " << n_rows << " rows");
        const auto counted = bytes.find(all[d].get());
        CHECK(all[d]->memory().used(backend::MemoryUse::work) ==
              (counted == bytes.end() ? 0 : counted->second));
    }
}

}  // namespace

TEST_CASE("the bytes of a step are those that its buffers take on each device") {
    const std::vector<Arrange> arrangements = {
        [](const Backends& all) {
            return std::vector<runtime::Stage>{{all[0], 3}};
        },
        [](const Backends& all) {
            return std::vector<runtime::Stage>{{all[2], 3}};
        },
        [](const Backends& all) {
            return std::vector<runtime::Stage>{{all[0], 1}, {all[2], 1}, {all[3], 1}};
        },
        [](const Backends& all) {
            return std::vector<runtime::Stage>{{all[3], 2}, {all[0], 1}};
        },
        // Experts on a device without layers, on the host twice, and with their layers.
        [](const Backends& all) {
            return std::vector<runtime::Stage>{{all[2], 4, {all[3], all[0], all[2], all[0]}}};
        },
        // Experts of the host's layers on a device, and on another backend of the host.
        [](const Backends& all) {
            return std::vector<runtime::Stage>{{all[0], 3, {all[2], all[1], all[2]}}};
        },
        // Experts on each other's devices.
        [](const Backends& all) {
            return std::vector<runtime::Stage>{{all[2], 2, {all[3], all[2]}}, {all[3], 2, {all[2], all[0]}}};
        },
        // Experts shared with the host, beside experts that a device has alone.
        [](const Backends& all) {
            return std::vector<runtime::Stage>{{all[2], 3, {all[0], all[3], all[0]}, 1000}, {all[3], 1}};
        },
        [](const Backends& all) {
            return std::vector<runtime::Stage>{{all[2], 1, {all[0]}, 1000}, {all[3], 1, {all[0]}, 1000}};
        },
        // With experts that steps of 9 rows and more copy, which takes a table.
        [](const Backends& all) {
            return std::vector<runtime::Stage>{
                {all[2], 2, {all[0], all[0]}, 1000, {.break_even_slots = 9.0}}};
        },
    };
    for (const Arrange& arrange : arrangements)
        for (const int64_t n_rows : {1, 9, 150})
            for (const bool makes_top_k : {true, false}) check_bytes(arrange, n_rows, makes_top_k);
}

TEST_CASE("a step beyond all memory is refused when its bytes are counted") {
    const Devices devices = make_devices(1);
    const std::vector<runtime::Stage> stages = {{devices[0], 1}};
    backend::StepLimits shape = k_shape;
    shape.hidden = int64_t{1} << 50;
    expect_error(Status::out_of_memory, "activations",
                 [&] { runtime::step_bytes(stages, shape, 65536, k_step_context); });
}

}  // namespace minim::test
