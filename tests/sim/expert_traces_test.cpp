// SPDX-License-Identifier: Apache-2.0
// Tests a pool with long traces of choices, without computing anything: which experts it keeps, and that its writes to
// the device's memory are safe at any time.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <iostream>
#include <list>
#include <map>
#include <mutex>
#include <numeric>
#include <random>

#include "bench/timed_backend.h"
#include "sim/devices.h"
#include "support/catch.h"
#include "support/temporary_folder.h"
#include "support/tiny_model.h"

namespace minim::test {
namespace {

using runtime::ExpertMoves;
using runtime::ExpertPool;

constexpr int64_t k_trace_layers = 2;
constexpr int64_t k_trace_experts = 128;
constexpr int64_t k_trace_used = 4;
constexpr int64_t k_trace_tokens = 2000;
// Moves under way at a time: with so few layers a step may start one, which arrives two steps later (expert_moves.cpp).
constexpr int64_t k_max_under_way = 2;

// A simulated device that knows which memory its tables of experts name, and counts writes to that memory, which are
// not allowed.
class TracedDevice : public bench::TimedBackend {
  public:
    TracedDevice() : TimedBackend(make_devices(1).front()) {}

    void write(std::byte* to, const std::byte* from, uint64_t bytes) const override {
        if (bytes == sizeof(backend::ExpertPlace)) {
            const std::lock_guard lock(mutex_);
            std::memcpy(&table_[to], from, bytes);
        } else {
            look_for_names(to, bytes);
        }
        TimedBackend::write(to, from, bytes);
    }
    void upload(backend::Scratch& scratch, std::byte* to, const std::byte* from,
                uint64_t bytes) const override {
        look_for_names(to, bytes);
        TimedBackend::upload(scratch, to, from, bytes);
    }
    int64_t n_overwritten() const {
        const std::lock_guard lock(mutex_);
        return n_overwritten_;
    }
    // Returns whether the table, as it was written last, has the expert.
    bool has(const backend::ExpertPlace* entry) const {
        const std::lock_guard lock(mutex_);
        const auto found = table_.find(const_cast<std::byte*>(reinterpret_cast<const std::byte*>(entry)));
        return found != table_.end() && found->second.gate != nullptr;
    }

  private:
    void look_for_names(const std::byte* to, uint64_t bytes) const {
        const std::lock_guard lock(mutex_);
        for (const auto& [at, place] : table_)
            for (const std::byte* matrix : {place.gate, place.up, place.down})
                if (matrix != nullptr && to <= matrix && matrix < to + bytes) ++n_overwritten_;
    }

    mutable std::mutex mutex_;
    mutable std::map<std::byte*, backend::ExpertPlace> table_;
    mutable int64_t n_overwritten_ = 0;
};

// Choices of tokens, layer by layer.
using Choice = std::vector<std::vector<int32_t>>;  // [layer][k_trace_used]

// Returns choices in which the use of an expert is 1 / rank^exponent. Every `drift` tokens the last expert becomes the
// first; 0: never.
std::vector<Choice> make_trace(double exponent, int64_t drift) {
    std::mt19937 random(3);
    std::vector<std::vector<int32_t>> order(k_trace_layers, std::vector<int32_t>(k_trace_experts));
    for (auto& experts : order) {
        std::iota(experts.begin(), experts.end(), 0);
        std::ranges::shuffle(experts, random);
    }
    std::vector<Choice> trace;
    for (int64_t t = 0; t < k_trace_tokens; ++t) {
        Choice& choice = trace.emplace_back(k_trace_layers);
        for (size_t layer = 0; layer < order.size(); ++layer) {
            if (drift > 0 && t % drift == drift - 1)
                std::rotate(order[layer].begin(), order[layer].end() - 1, order[layer].end());
            // Draws without repetition: the experts that arrive first if waiting times are exponential with these
            // rates.
            std::vector<std::pair<double, int32_t>> arrivals;
            for (size_t r = 0; r < order[layer].size(); ++r) {
                const double rate = std::pow(static_cast<double>(r + 1), -exponent);
                arrivals.emplace_back(std::exponential_distribution<double>(rate)(random), order[layer][r]);
            }
            std::ranges::partial_sort(arrivals, arrivals.begin() + k_trace_used);
            for (size_t i = 0; i < k_trace_used; ++i) choice[layer].push_back(arrivals[i].second);
        }
    }
    return trace;
}

// Returns the rate of hits of a cache that replaces the expert used longest ago, or least often, at once.
double rate_of_simple_cache(const std::vector<Choice>& trace, int64_t n_places, bool by_count) {
    std::list<int32_t> here;  // the last one is replaced
    std::map<int32_t, int64_t> n_uses;
    int64_t n_hits = 0;
    for (const Choice& choice : trace) {
        for (size_t layer = 0; layer < choice.size(); ++layer) {
            for (const int32_t id : choice[layer]) {
                const auto expert = static_cast<int32_t>(layer) * static_cast<int32_t>(k_trace_experts) + id;
                ++n_uses[expert];
                const auto found = std::ranges::find(here, expert);
                const bool is_hit = found != here.end();
                if (is_hit) here.erase(found);
                n_hits += is_hit ? 1 : 0;
                if (!is_hit && std::ssize(here) == n_places) {
                    const auto least =
                        std::ranges::min_element(here, {}, [&](int32_t other) { return n_uses.at(other); });
                    here.erase(by_count ? least : std::prev(here.end()));
                }
                here.push_front(expert);
            }
        }
    }
    return static_cast<double>(n_hits) / static_cast<double>(k_trace_tokens * k_trace_layers * k_trace_used);
}

struct Traced {
    std::shared_ptr<const TracedDevice> device = std::make_shared<const TracedDevice>();
    std::shared_ptr<const model::Model> model;
    ExpertPool* pool = nullptr;

    Traced(const std::string& path, uint64_t bytes, ExpertMoves moves) {
        model::OpenOptions options;
        options.expert_moves = moves;
        model = model_placed(machine_of({device}), {.cache_bytes = bytes}, options, path);
        pool = model->expert_pools()[0].get();
    }

    // Every expert is in the device's table or computed by the host, never both or neither. Returns how many are on the device.
    int64_t n_on_device() const {
        int64_t n = 0;
        int64_t n_wrong = 0;
        for (int64_t layer = 0; layer < k_trace_layers; ++layer) {
            for (int64_t e = 0; e < k_trace_experts; ++e) {
                const bool is_here = device->has(pool->on_device(layer).places + e);
                n_wrong += is_here == (pool->on_host(layer).is_on_device[e] != 0) ? 0 : 1;
                n += is_here ? 1 : 0;
            }
        }
        REQUIRE(n_wrong == 0);
        return n;
    }

    // Returns the rate of hits.
    double run(const std::vector<Choice>& trace) const {
        for (const Choice& choice : trace) {
            const int64_t n_moves = pool->state().n_moves;
            ExpertPool::Step step(*pool);
            REQUIRE(pool->state().n_moves - n_moves <= k_max_under_way);
            const int64_t n_here = n_on_device();
            REQUIRE(n_here <= pool->state().n_places);
            REQUIRE(n_here >= pool->state().n_places - k_max_under_way);
            for (int64_t layer = 0; layer < k_trace_layers; ++layer)
                pool->note(layer, choice[static_cast<size_t>(layer)]);
            step.end(1);
        }
        CHECK(device->n_overwritten() == 0);
        const runtime::ExpertPoolState state = pool->state();
        CHECK(state.n_hits + state.n_misses == k_trace_tokens * k_trace_layers * k_trace_used);
        CHECK(state.moved_bytes * static_cast<uint64_t>(state.n_places) ==
              state.bytes * static_cast<uint64_t>(state.n_moves));
        return static_cast<double>(state.n_hits) / static_cast<double>(state.n_hits + state.n_misses);
    }
};

}  // namespace

TEST_CASE("traces: a pool keeps what is used most, follows drift, and never overwrites what a table names") {
    const TemporaryFolder folder;
    const std::string path = folder / "experts.gguf";
    TinyModel({.n_layer = k_trace_layers, .n_expert = k_trace_experts, .n_expert_used = k_trace_used})
        .write(path);
    const uint64_t expert = runtime::place_bytes(Traced(path, 1, ExpertMoves::fixed).pool->layers()[0]);
    const int64_t n_places = k_trace_layers * k_trace_experts / 4;
    const uint64_t bytes = expert * static_cast<uint64_t>(n_places);

    const std::vector<Choice> zipf = make_trace(1.1, 0);
    const std::vector<Choice> drift = make_trace(1.1, 40);
    const std::vector<Choice> uniform = make_trace(0.0, 0);
    const auto rates = [&](const char* name, const std::vector<Choice>& trace) {
        std::map<std::string, double> rate = {{"LRU", rate_of_simple_cache(trace, n_places, false)},
                                              {"LFU", rate_of_simple_cache(trace, n_places, true)}};
        for (const auto& [moves, of] :
             {std::pair(ExpertMoves::fixed, "fixed"), std::pair(ExpertMoves::reproducible, "reproducible"),
              std::pair(ExpertMoves::eager, "eager")}) {
            const Traced traced(path, bytes, moves);
            REQUIRE(traced.pool->state().n_places == n_places);
            rate[of] = traced.run(trace);
            CHECK((traced.pool->state().n_moves > 0) == (moves != ExpertMoves::fixed));
        }
        std::cout << name << ", hits of a cache of a quarter of the experts:";
        for (const auto& [of, value] : rate) std::cout << ' ' << of << ' ' << value;
        std::cout << '\n';
        return rate;
    };
    // Steps without any work are faster than copies, so nothing can be said of the rate of eager moves here.
    auto rate = rates("zipf 1.1", zipf);
    CHECK(rate["reproducible"] > rate["fixed"] + 0.2);
    CHECK(rate["reproducible"] >= rate["LRU"]);
    rate = rates("drift of zipf 1.1", drift);
    CHECK(rate["reproducible"] > rate["fixed"] + 0.1);
    CHECK(rate["reproducible"] >= rate["LRU"]);
    rate = rates("uniform", uniform);
    CHECK(std::abs(rate["reproducible"] - 0.25) < 0.03);
    CHECK(std::abs(rate["fixed"] - 0.25) < 0.03);
}

TEST_CASE("traces: equal choices in equal steps give equal tables") {
    const TemporaryFolder folder;
    const std::string path = folder / "experts.gguf";
    TinyModel({.n_layer = k_trace_layers, .n_expert = k_trace_experts, .n_expert_used = k_trace_used})
        .write(path);
    const std::vector<Choice> trace = make_trace(0.8, 25);
    const Traced first(path, 1 << 20, ExpertMoves::reproducible);
    const Traced second(path, 1 << 20, ExpertMoves::reproducible);
    CHECK(first.run(trace) == second.run(trace));
    for (int64_t layer = 0; layer < k_trace_layers; ++layer)
        for (int64_t e = 0; e < k_trace_experts; ++e)
            CHECK(first.pool->on_host(layer).is_on_device[e] == second.pool->on_host(layer).is_on_device[e]);
}

}  // namespace minim::test
