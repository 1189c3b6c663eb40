// SPDX-License-Identifier: Apache-2.0
// A device and the host compute the experts of a layer at the same time. Both are made slow, so that what they compute takes no
// time beside the pauses.
#include <algorithm>
#include <chrono>
#include <thread>

#include "bench/timed_backend.h"
#include "sim/devices.h"
#include "sim/placement_checks.h"
#include "support/catch.h"

namespace minim::test {
namespace {

using Seconds = std::chrono::duration<double>;

constexpr int64_t k_overlap_layers = 6;  // of SixLayers

// The CPU, which takes longer for the experts of a layer.
class SlowHost : public bench::TimedBackend {
  public:
    explicit SlowHost(double seconds) : TimedBackend(cpu_backend()), seconds_(seconds) {}
    void expert_slots(backend::Scratch& scratch, const float* h, int64_t n, const int32_t* ids,
                      int64_t n_used, const backend::ExpertWeights& weights, float* out) const override {
        TimedBackend::expert_slots(scratch, h, n, ids, n_used, weights, out);
        std::this_thread::sleep_for(Seconds(seconds_));
    }

  private:
    const double seconds_;
};

// Returns the seconds that a layer of a step of one token takes: of several steps the fastest, as others use this machine too.
double seconds_a_layer(const SixLayers& six, double of_device, double of_host, double of_exchange) {
    const Devices devices = make_devices(1, {.exchange_seconds = of_exchange, .experts_seconds = of_device});
    model::OpenOptions options;
    options.expert_moves = runtime::ExpertMoves::fixed;
    const auto model = model_placed(machine_of({devices[0]}, {}, std::make_shared<const SlowHost>(of_host)),
                                    {.cache_bytes = 1 << 17}, options, six.path);
    engine::Session session = make_session(model, 100);
    double fastest = 1e9;
    for (int step = 0; step < 4; ++step) {
        const auto start = std::chrono::steady_clock::now();
        session.eval(std::span(six.ids).subspan(static_cast<size_t>(step), 1), false, {}, nullptr);
        fastest = std::min(fastest, Seconds(std::chrono::steady_clock::now() - start).count());
    }
    return fastest / static_cast<double>(k_overlap_layers);
}

}  // namespace

TEST_CASE("overlap: a layer takes as long as the slower of device and host, not as long as both") {
    const SixLayers six;
    struct Case {
        double of_device, of_host, of_exchange;
    };
    for (const Case& c : {Case{0.03, 0.03, 0.0}, Case{0.03, 0.001, 0.0}, Case{0.001, 0.03, 0.0},
                          Case{0.02, 0.04, 0.0}, Case{0.03, 0.03, 0.005}}) {
        INFO("device " << c.of_device << ", host " << c.of_host << ", exchange " << c.of_exchange);
        const double seconds = seconds_a_layer(six, c.of_device, c.of_host, c.of_exchange);
        // The device takes the time of an exchange when it posts, and again when it collects.
        const double at_once = std::max(c.of_device, c.of_host) + 2.0 * c.of_exchange;
        CHECK(seconds >= at_once);
        CHECK(seconds < at_once + 0.6 * std::min(c.of_device, c.of_host) + 0.004);
    }
}

}  // namespace minim::test
