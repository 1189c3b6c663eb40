// SPDX-License-Identifier: Apache-2.0
// The choice of experts in a synthetic model. Its routers score experts by chance; a bias makes some more likely than others, so
// that caches of experts can be measured without real weights.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "synthetic.h"

namespace minim::bench {

struct Routing {
    enum class Kind : uint8_t {
        uniform,  // all alike
        zipf,     // the expert of rank r in proportion to 1 / r^exponent; ranks differ from layer to layer
        drift,    // the same, and ranks change with time
    };
    Kind kind = Kind::uniform;
    double exponent = 0.0;
};

// Parses "uniform", "zipf:1.1" or "drift:1.1". Throws invalid.
Routing parse_routing(std::string_view text);

// Returns for each rank how likely a token is to choose the expert. The probabilities add up to n_used.
std::vector<double> use_of_ranks(double exponent, int64_t n_expert, int64_t n_used);

// Returns a bias for each rank with which experts are chosen as likely as `use` says, if scores are as a synthetic router's.
std::vector<float> bias_of_ranks(const std::vector<double>& use, int64_t hidden);

// Writes the biases of a model's routers.
class Router {
  public:
    // The arguments must outlive it.
    Router(const Routing& routing, const SyntheticModel& model);

    // Call before a step of n_tokens rows, while no step runs. Moves the ranks if it is time.
    void advance(int64_t n_tokens);

  private:
    void write_biases() const;

    const SyntheticModel& model_;
    const Routing routing_;
    std::vector<float> bias_;                 // [rank]
    std::vector<std::vector<size_t>> ranks_;  // [layer][expert], at first
    int64_t n_tokens_ = 0;
};

}  // namespace minim::bench
