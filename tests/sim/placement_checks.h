// SPDX-License-Identifier: Apache-2.0
// Checks of what must be true for every placement.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "sim/devices.h"
#include "support/helpers.h"

namespace minim::test {

// With the thread sanitizer a step takes ten times as long. It looks for races, for which some of the failures are
// enough.
#ifdef __SANITIZE_THREAD__
inline constexpr bool k_has_thread_sanitizer = true;
#else
inline constexpr bool k_has_thread_sanitizer = false;
#endif

// Returns `count` tokens that follow a prompt, with drafts.
std::vector<int32_t> answer_on(const std::shared_ptr<const model::Model>& model,
                               const std::vector<int32_t>& prompt, int64_t count);

// Returns the logits of every token, in a session of its own.
std::vector<float> logits_on(const std::shared_ptr<const model::Model>& model,
                             const std::vector<int32_t>& ids, size_t chunk);

// A random model of six layers, a prompt, and its logits on the CPU.
struct SixLayers {
    TemporaryFolder folder;
    std::string path = folder / "tiny.gguf";
    std::vector<int32_t> ids;  // 90
    std::vector<float> expected;
    SixLayers();
};

// Checks that texts, drafts, forks and truncation give the CPU's results.
void check_texts(const std::shared_ptr<const model::Model>& model);

// Checks that a state saved with the model is restored on the CPU, and the other way round.
void check_states(const std::shared_ptr<const model::Model>& model);

// Checks that an engine answers many requests that begin alike as sessions of the CPU do. Returns how many tokens of
// the last request's prompt the engine had already.
int64_t check_requests(engine::Engine& engine);

// Checks that prompts whose pages went to host memory and came back have the logits that they had before.
void check_host_cache(const std::shared_ptr<const model::Model>& model);

// Checks that sessions may be used by several threads at once.
void check_threads(const std::shared_ptr<const model::Model>& model);

using OpenModel = std::function<std::shared_ptr<const model::Model>(const model::OpenOptions& options)>;

// Checks that progress reaches its end, and that a load that is cancelled at any of its reports leaves nothing on the
// devices.
void check_cancelled_loads(const Devices& devices, const OpenModel& open);

// Makes devices of which one fails as the options say.
using DevicesThatFail = std::function<Devices(const sim::Options& options)>;

// How often something of a kind was made to fail.
struct Failures {
    int64_t allocations = 0;
    int64_t transfers = 0;
    int64_t operations = 0;
};

// Lets the first, the second, the third ... allocation fail, until no allocation fails any more; then does the same
// with transfers and with operations. The thread sanitizer's build skips some of them. Each time use(devices) throws an
// error with `name` in it, and leaves nothing on any device.
Failures fail_at_each(const std::string& name, const DevicesThatFail& make,
                      const std::function<void(const Devices& devices)>& use);

// Checks that a session whose evaluation is cancelled goes on from where it was.
void check_cancelled_evaluation(const std::shared_ptr<const model::Model>& model);

}  // namespace minim::test
