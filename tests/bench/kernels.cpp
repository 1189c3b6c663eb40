// SPDX-License-Identifier: Apache-2.0
#include "kernels.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <random>

#include <fmt/format.h>

#include "model/architecture.h"
#include "model/minimax_m2.h"

namespace minim::bench {
namespace {

using backend::LinearTask;
using backend::Matrix;

constexpr int k_repeats = 20;

double bytes_of(const Matrix& m) {
    return static_cast<double>(m.rows * m.row_bytes);
}

// Activations of a step in the device's memory.
class Activations {
  public:
    Activations(const backend::Backend& backend, const model::Config& c, int64_t n) : backend_(backend) {
        x = take(n * c.hidden);
        h = take(n * c.hidden);
        q = take(n * c.n_head * c.head_dim);
        o = take(n * c.n_head * c.head_dim);
        k = take(n * c.n_head_kv * c.head_dim);
        v = take(n * c.n_head_kv * c.head_dim);
        gates = take(n * c.n_expert_used);
        ids = reinterpret_cast<int32_t*>(take(n * c.n_expert_used));
        logits = take(n * c.n_vocab);
    }

    float *x, *h, *q, *k, *v, *o, *gates, *logits;
    int32_t* ids;

  private:
    float* take(int64_t count) {
        std::mt19937 random(1);
        std::normal_distribution<float> normal;
        std::vector<float> values(static_cast<size_t>(count));
        for (float& value : values) value = normal(random);
        memory_.push_back(backend_.allocate(values.size() * sizeof(float), "activations"));
        std::byte* place = memory_.back()->data();
        backend_.write(place, reinterpret_cast<const std::byte*>(values.data()),
                       values.size() * sizeof(float));
        return reinterpret_cast<float*>(place);
    }

    const backend::Backend& backend_;
    std::vector<std::unique_ptr<backend::Memory>> memory_;
};

backend::StepLimits limits_of(const model::Config& c, int64_t n, int64_t n_context) {
    backend::StepLimits limits = model::shape_of(c);
    limits.n_rows = n;
    limits.n_context = n_context;
    return limits;
}

double products_of(const Matrix& m) {
    return static_cast<double>(m.rows * m.cols);
}

// Times a turn of an exchange, with a host that answers at once: the bytes go both ways, and nothing is computed. The time of steps of
// twice as many turns as there are layers, less that of steps of as many, divided by them: what a step takes beside its turns does not
// count.
KernelTime time_exchange(const backend::Backend& backend, backend::Scratch& stream,
                         backend::Exchange& exchange, const model::Config& c, const Activations& a,
                         std::span<const backend::KvRow> rows) {
    const auto n = std::ssize(rows);
    const std::vector<backend::ExpertPlace> nowhere(static_cast<size_t>(c.n_expert));
    const uint64_t table_bytes = nowhere.size() * sizeof(nowhere[0]);
    const auto table = backend.allocate(table_bytes, "a table of experts");
    backend.write(table->data(), reinterpret_cast<const std::byte*>(nowhere.data()), table_bytes);
    const auto* places = reinterpret_cast<const backend::ExpertPlace*>(table->data());
    const auto outputs =
        backend.allocate(static_cast<uint64_t>(n * c.n_expert_used * c.hidden) * sizeof(float), "outputs");
    auto* out = reinterpret_cast<float*>(outputs->data());
    const auto step = [&](backend::StepBatch batch, int64_t n_turns) {
        exchange.begin();
        const std::future<void> answers = std::async(std::launch::async, [&] {
            for (int64_t turn = 0; turn < n_turns; ++turn) {
                exchange.wait(turn, nullptr);
                // What is written of a slot counts as its output.
                for (int64_t slot = 0; slot < n * c.n_expert_used; ++slot)
                    exchange.turn().out[slot * c.hidden] = 0.0F;
                exchange.answer(turn);
            }
        });
        do {
            if (backend.begin_step(stream, batch)) break;
            for (int64_t turn = 0; turn < n_turns; ++turn) {
                backend.post(stream, exchange, turn, a.h, a.ids, n, c.n_expert_used, c.hidden);
                backend.collect(stream, exchange, turn, places, a.ids, n, c.n_expert_used, c.hidden, out);
            }
        } while (!backend.end_step(stream));
        answers.wait();
        backend.wait(stream);
    };
    const auto seconds_of = [&](const void* calls, int64_t n_turns) {
        const backend::StepBatch batch = {{}, rows, c.n_head, c.n_head_kv, calls};
        for (int i = 0; i < 3; ++i) step(batch, n_turns);  // computed, recorded, repeated
        const auto start = std::chrono::steady_clock::now();
        for (int i = 0; i < k_repeats; ++i) step(batch, n_turns);
        const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
        return taken.count() / k_repeats;
    };
    const double of_one = seconds_of(&exchange, c.n_layer);
    const double of_two = seconds_of(&table, 2 * c.n_layer);
    return {.name = "exchange",
            .seconds = std::max(of_two - of_one, 0.0) / static_cast<double>(c.n_layer),
            .is_of_step = false,
            .remark = "one turn"};
}

}  // namespace

std::vector<KernelTime> time_kernels(const backend::Backend& backend, const model::Config& config,
                                     const model::Weights& weights, std::span<const kv::Sequence> texts,
                                     int64_t depth) {
    const auto n = std::ssize(texts);
    const std::unique_ptr<backend::Scratch> stream = backend.reserve(limits_of(config, n, depth + 1));
    const Activations a(backend, config, n);
    std::vector<backend::KvRow> rows;
    for (const kv::Sequence& text : texts) rows.push_back({&text.view(), depth});
    const runtime::Activations in_layers = {backend, *stream, n,   a.x,   a.h,     a.q,
                                            a.k,     a.v,     a.o, a.ids, a.gates, rows};
    const std::vector<float> frequency = model::rope_frequencies(config);

    std::vector<KernelTime> times;
    const auto time = [&](const char* name, double bytes, const std::function<void()>& work) {
        const backend::StepBatch batch = {{}, rows, config.n_head, config.n_head_kv, name};
        const auto step = [&] {
            do {
                if (backend.begin_step(*stream, batch)) return;
                work();
            } while (!backend.end_step(*stream));
        };
        for (int i = 0; i < 3; ++i) step();  // computed, recorded, repeated
        backend.wait(*stream);
        const auto start = std::chrono::steady_clock::now();
        for (int i = 0; i < k_repeats; ++i) step();
        backend.wait(*stream);
        const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
        times.push_back({.name = name, .seconds = taken.count() / k_repeats, .bytes = bytes});
    };
    // Multiplications and additions of the operation timed last.
    const auto note_operations = [&](double products_of_row) {
        times.back().operations = 2.0 * products_of_row * static_cast<double>(n);
    };
    using Work = std::function<void(const model::LayerWeights&, int64_t)>;
    std::map<std::string, Work> works;
    const auto each_layer = [&](const char* name, double bytes, const Work& work) {
        works[name] = work;
        time(name, bytes, [&] {
            for (size_t i = 0; i < weights.layers.size(); ++i)
                work(weights.layers[i], static_cast<int64_t>(i));
        });
    };
    const auto layers = static_cast<double>(weights.layers.size());
    const model::LayerWeights& first = weights.layers.front();
    const double n_slots = static_cast<double>(std::min(n * config.n_expert_used, config.n_expert));

    each_layer("norm", 0.0, [&](const model::LayerWeights& layer, int64_t) {
        backend.norm(*stream, a.x, n, layer.attn_norm, config.norm_eps, a.h);
    });
    each_layer("q, k, v", layers * (bytes_of(first.wq) + bytes_of(first.wk) + bytes_of(first.wv)),
               [&](const model::LayerWeights& layer, int64_t) {
                   const LinearTask qkv[] = {
                       {&layer.wq, a.q, false}, {&layer.wk, a.k, false}, {&layer.wv, a.v, false}};
                   backend.linear(*stream, a.h, n, qkv);
               });
    note_operations(layers * (products_of(first.wq) + products_of(first.wk) + products_of(first.wv)));
    each_layer("attend", 0.0, [&](const model::LayerWeights& layer, int64_t index) {
        backend.attend(*stream, model::attend_args(config, layer, frequency, index, in_layers));
    });
    each_layer("o", layers * bytes_of(first.wo), [&](const model::LayerWeights& layer, int64_t) {
        const LinearTask task = {&layer.wo, a.x, true};
        backend.linear(*stream, a.o, n, {&task, 1});
    });
    note_operations(layers * products_of(first.wo));
    each_layer("route", layers * bytes_of(first.router), [&](const model::LayerWeights& layer, int64_t) {
        backend.route(*stream, a.h, n, layer.router, layer.router_bias, config.n_expert_used, a.ids, a.gates);
    });
    const auto expert_bytes = [&](const backend::ExpertStack& stack) {
        return static_cast<double>(stack.rows * stack.row_bytes);
    };
    each_layer("experts",
               layers * n_slots *
                   (expert_bytes(first.experts.gate) + expert_bytes(first.experts.up) +
                    expert_bytes(first.experts.down)),
               [&](const model::LayerWeights& layer, int64_t) {
                   backend.experts(*stream, a.h, n, a.ids, a.gates, config.n_expert_used, layer.experts, a.x,
                                   true);
               });
    note_operations(layers * 3.0 *
                    static_cast<double>(config.n_expert_used * config.hidden * config.expert_ff));
    if (const auto exchange =
            backend.make_exchange(limits_of(config, n, depth + 1), 2 * std::ssize(weights.layers)))
        times.push_back(time_exchange(backend, *stream, *exchange, config, a, rows));
    const auto head = [&] {
        const LinearTask task = {&weights.output, a.logits, false};
        backend.linear(*stream, a.h, n, {&task, 1});
    };
    time("head", bytes_of(weights.output), head);
    time("in order", 0.0, [&] {
        for (size_t i = 0; i < weights.layers.size(); ++i)
            for (const char* operation : {"norm", "q, k, v", "attend", "o", "norm", "route", "experts"})
                works.at(operation)(weights.layers[i], static_cast<int64_t>(i));
        head();
    });
    times.back().is_of_step = false;
    backend.synchronize(*stream);
    return times;
}

void print_kernels(std::span<const KernelTime> times) {
    double sum = 0.0;
    fmt::print("{:<12} {:>10} {:>8} {:>8}\n", "operation", "us a step", "GB/s", "TFLOP/s");
    for (const KernelTime& time : times) {
        if (time.is_of_step) sum += time.seconds;
        fmt::print("{:<12} {:>10.1f}", time.name, time.seconds * 1e6);
        if (time.bytes > 0.0) fmt::print(" {:>8.0f}", time.bytes / time.seconds / 1e9);
        if (time.operations > 0.0) fmt::print(" {:>8.1f}", time.operations / time.seconds / 1e12);
        fmt::print("{}\n", time.remark.empty() ? "" : "   (" + time.remark + ")");
    }
    fmt::print("{:<12} {:>10.1f}   (norm counts twice)\n", "together", (sum + times.front().seconds) * 1e6);
}

}  // namespace minim::bench
