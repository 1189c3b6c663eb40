// SPDX-License-Identifier: Apache-2.0
#include "routing.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>
#include <random>

#include "base/error.h"

namespace minim::bench {
namespace {

// No expert is chosen by nearly every token: real routers are trained to use all.
constexpr double k_max_use = 0.95;
// Drift: after this number of tokens every expert has the next rank, and the last one becomes the first.
constexpr int64_t k_tokens_a_rank = 16;

constexpr int k_draws = 1 << 16;
constexpr size_t k_noise = size_t{1} << 20;

double sum_of(const std::vector<double>& values) {
    return std::accumulate(values.begin(), values.end(), 0.0);
}

// Returns scores without a bias, of normally distributed weights and inputs of unit variance.
std::vector<float> scores_by_chance(std::mt19937& random, int64_t hidden) {
    std::normal_distribution<float> normal(0.0F, k_router_deviation * std::sqrt(static_cast<float>(hidden)));
    std::vector<float> scores(k_noise);
    for (float& score : scores) score = 1.0F / (1.0F + std::exp(-normal(random)));
    return scores;
}

}  // namespace

Routing parse_routing(std::string_view text) {
    if (text == "uniform") return {};
    Routing routing;
    const size_t colon = text.find(':');
    const std::string_view kind = text.substr(0, colon);
    const std::string_view number = colon == std::string_view::npos ? "" : text.substr(colon + 1);
    if (kind == "zipf") routing.kind = Routing::Kind::zipf;
    if (kind == "drift") routing.kind = Routing::Kind::drift;
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), routing.exponent);
    const bool is_number = error == std::errc() && end == number.data() + number.size();
    if (routing.kind == Routing::Kind::uniform || !is_number ||
        !(routing.exponent >= 0.0 && routing.exponent <= 4.0))
        fail(Status::invalid, "routing '{}' is not uniform, zipf:S or drift:S with S from 0 to 4", text);
    return routing;
}

std::vector<double> use_of_ranks(double exponent, int64_t n_expert, int64_t n_used) {
    std::vector<double> weight(static_cast<size_t>(n_expert));
    for (size_t r = 0; r < weight.size(); ++r) weight[r] = std::pow(static_cast<double>(r + 1), -exponent);
    const double most = std::max(k_max_use, static_cast<double>(n_used) / static_cast<double>(n_expert));
    std::vector<double> use(weight.size());
    // The first ranks are used as much as possible; the others share what is left.
    for (size_t n_full = 0; n_full < use.size(); ++n_full) {
        const double left = static_cast<double>(n_used) - most * static_cast<double>(n_full);
        const double all = std::accumulate(weight.begin() + static_cast<int64_t>(n_full), weight.end(), 0.0);
        for (size_t r = 0; r < use.size(); ++r) use[r] = r < n_full ? most : left * weight[r] / all;
        if (use[n_full] <= most) break;
    }
    return use;
}

// After each draw of n_used experts the bias of those chosen falls and that of the others rises, so that on average each is
// chosen as often as it should be. The mean over the second half of the draws is nearly free of their chance.
std::vector<float> bias_of_ranks(const std::vector<double>& use, int64_t hidden) {
    std::mt19937 random(7);
    const std::vector<float> scores = scores_by_chance(random, hidden);
    const size_t n = use.size();
    const auto n_used = static_cast<int64_t>(std::llround(sum_of(use)));
    std::vector<double> bias(n);
    std::vector<double> sum(n);
    std::vector<std::pair<double, size_t>> order(n);
    for (int draw = 0; draw < k_draws; ++draw) {
        const size_t at = random() % (k_noise - n);
        for (size_t r = 0; r < n; ++r) order[r] = {-(static_cast<double>(scores[at + r]) + bias[r]), r};
        std::ranges::nth_element(order, order.begin() + n_used - 1);
        const double rate = draw < k_draws / 4 ? 0.02 : 0.004;
        for (size_t r = 0; r < n; ++r) bias[r] += rate * use[r];
        for (int64_t i = 0; i < n_used; ++i) bias[order[static_cast<size_t>(i)].second] -= rate;
        if (draw >= k_draws / 2)
            for (size_t r = 0; r < n; ++r) sum[r] += bias[r];
    }
    std::vector<float> mean(n);
    for (size_t r = 0; r < n; ++r) mean[r] = static_cast<float>(sum[r] / (k_draws / 2));
    return mean;
}

Router::Router(const Routing& routing, const SyntheticModel& model) : model_(model), routing_(routing) {
    const model::Config& config = model.config;
    bias_.resize(static_cast<size_t>(config.n_expert));
    if (routing.kind != Routing::Kind::uniform)
        bias_ = bias_of_ranks(use_of_ranks(routing.exponent, config.n_expert, config.n_expert_used),
                              config.hidden);
    std::mt19937 random(11);
    for (int64_t layer = 0; layer < config.n_layer; ++layer) {
        std::vector<size_t>& ranks = ranks_.emplace_back(bias_.size());
        std::iota(ranks.begin(), ranks.end(), size_t{0});
        for (size_t i = ranks.size(); i > 1; --i) std::swap(ranks[i - 1], ranks[random() % i]);
    }
    write_biases();
}

void Router::advance(int64_t n_tokens) {
    const int64_t before = n_tokens_ / k_tokens_a_rank;
    n_tokens_ += n_tokens;
    if (routing_.kind == Routing::Kind::drift && n_tokens_ / k_tokens_a_rank != before) write_biases();
}

void Router::write_biases() const {
    const auto n_moved =
        routing_.kind == Routing::Kind::drift ? static_cast<size_t>(n_tokens_ / k_tokens_a_rank) : 0;
    std::vector<float> biases(bias_.size());
    size_t layer = 0;
    for (const runtime::Stage& stage : model_.placement.stages()) {
        for (int64_t i = 0; i < stage.n_layer; ++i, ++layer) {
            for (size_t e = 0; e < biases.size(); ++e)
                biases[e] = bias_[(ranks_[layer][e] + n_moved) % bias_.size()];
            const backend::Vector& to = model_.weights.layers[layer].router_bias;
            stage.backend->write(reinterpret_cast<std::byte*>(const_cast<float*>(to.data)),
                                 reinterpret_cast<const std::byte*>(biases.data()),
                                 biases.size() * sizeof(float));
        }
    }
}

}  // namespace minim::bench
