// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "cpu/cpu_backend.h"
#include "cpu/kernel_tables.h"
#include "cpu/scratch.h"
#include "reference/reference_backend.h"
#include "support/catch.h"
#include "unit/cpu/support.h"

namespace minim::test {
namespace {

using backend::ExpertStack;
using backend::ExpertWeights;

struct Stack {
    std::vector<TestMatrix> matrices;
    ExpertStack view;

    Stack(Format format, int64_t n_expert, int64_t rows, int64_t cols, Random& random) {
        for (int64_t e = 0; e < n_expert; ++e) {
            matrices.emplace_back(format, rows, cols, random);
            view.expert.push_back(matrices.back().view.data);
        }
        view.format = format;
        view.rows = rows;
        view.cols = cols;
        view.row_bytes = matrices[0].view.row_bytes;
    }
};

struct Layer {
    int64_t hidden;
    int64_t ff;
    Stack gate, up, down;
    ExpertWeights weights;

    Layer(Format gate_format, Format up_format, Format down_format, int64_t n_expert, int64_t hidden_size,
          int64_t ff_size, Random& random)
        : hidden(hidden_size),
          ff(ff_size),
          gate(gate_format, n_expert, ff, hidden, random),
          up(up_format, n_expert, ff, hidden, random),
          down(down_format, n_expert, hidden, ff, random),
          weights{gate.view, up.view, down.view} {}
};

struct Batch {
    int64_t n;
    int64_t n_used;
    std::vector<float> h, y, gates;
    std::vector<int32_t> ids;

    Batch(int64_t rows, int64_t used, int64_t n_expert, int64_t hidden, Random& random)
        : n(rows), n_used(used), h(random.normal(n * hidden, 0.1F)), y(random.normal(n * hidden)) {
        for (int64_t i = 0; i < n; ++i) {
            const int64_t first = random.below(n_expert);
            for (int64_t s = 0; s < n_used; ++s) {
                ids.push_back(static_cast<int32_t>((first + 3 * s) % n_expert));
                gates.push_back(1.0F / static_cast<float>(s + 2));
            }
        }
    }
};

std::vector<float> experts(CpuLevel level, int32_t n_threads, const Layer& layer, const Batch& batch,
                           int64_t chunk) {
    const ThreadPool pool(n_threads);
    const auto backend = cpu::make_cpu_backend(pool, level);
    const auto scratch = backend->reserve({.n_rows = chunk,
                                           .hidden = layer.hidden,
                                           .n_expert = layer.gate.view.n_expert(),
                                           .n_expert_used = batch.n_used,
                                           .expert_ff = layer.ff});
    std::vector<float> y = batch.y;
    for (int64_t i = 0; i < batch.n; i += chunk) {
        backend->experts(*scratch, batch.h.data() + i * layer.hidden, std::min(chunk, batch.n - i),
                         batch.ids.data() + i * batch.n_used, batch.gates.data() + i * batch.n_used,
                         batch.n_used, layer.weights, y.data() + i * layer.hidden, true);
    }
    return y;
}

// Returns the input of a matrix as the CPU backend reads it, quantised if the format's kernel quantises inputs.
std::vector<double> as_read(Format format, const std::vector<double>& x) {
    const cpu::LinearKernel* kernel = cpu::linear_kernel(cpu::k_scalar_kernels, format);
    if (kernel == nullptr) return x;
    const std::vector<float> floats(x.begin(), x.end());
    const auto cols = static_cast<int64_t>(x.size());
    const auto row = input_rows(cpu::k_scalar_kernels, kernel->activation, floats, 1, cols);
    return dequantised(kernel->activation, row.data(), cols);
}

std::vector<double> multiply(const TestMatrix& w, float scale, const std::vector<double>& x) {
    std::vector<double> y;
    for (int64_t r = 0; r < w.view.rows; ++r)
        y.push_back(exact_dot(w.decoded_row(r), x).value * static_cast<double>(scale));
    return y;
}

float scale_of(const ExpertStack& stack, size_t e) {
    return stack.scale.empty() ? 1.0F : stack.scale[e];
}

std::vector<double> experts_exactly(const Layer& layer, const Batch& batch) {
    std::vector<double> y(batch.y.begin(), batch.y.end());
    for (size_t i = 0; i < static_cast<size_t>(batch.n); ++i) {
        const auto hidden = static_cast<size_t>(layer.hidden);
        const std::vector<double> h(batch.h.data() + i * hidden, batch.h.data() + (i + 1) * hidden);
        for (size_t s = 0; s < static_cast<size_t>(batch.n_used); ++s) {
            const size_t slot = i * static_cast<size_t>(batch.n_used) + s;
            const auto e = static_cast<size_t>(batch.ids[slot]);
            const ExpertWeights& w = layer.weights;
            const auto gate =
                multiply(layer.gate.matrices[e], scale_of(w.gate, e), as_read(w.gate.format, h));
            const auto up = multiply(layer.up.matrices[e], scale_of(w.up, e), as_read(w.up.format, h));
            std::vector<double> activated;
            for (size_t r = 0; r < gate.size(); ++r)
                activated.push_back(gate[r] / (1.0 + std::exp(-gate[r])) * up[r]);
            const auto out =
                multiply(layer.down.matrices[e], scale_of(w.down, e), as_read(w.down.format, activated));
            for (size_t c = 0; c < hidden; ++c)
                y[i * hidden + c] += static_cast<double>(batch.gates[slot]) * out[c];
        }
    }
    return y;
}

double relative_difference(const std::vector<float>& a, const std::vector<double>& b) {
    double difference = 0.0;
    double size = 0.0;
    for (size_t i = 0; i < b.size(); ++i) {
        difference += (static_cast<double>(a[i]) - b[i]) * (static_cast<double>(a[i]) - b[i]);
        size += b[i] * b[i];
    }
    return std::sqrt(difference / size);
}

}  // namespace

TEST_CASE("experts agree with the formulas in double precision") {
    struct Case {
        Format gate, up, down;
        int64_t hidden, ff;
    };
    const std::vector<Case> cases = {
        {Format::f32, Format::f32, Format::f32, 48, 33},
        {Format::bf16, Format::f16, Format::f32, 33, 17},
        {Format::q8_0, Format::q8_0, Format::q8_0, 96, 160},
        {Format::f32, Format::bf16, Format::q8_0, 48, 96},
        {Format::q8_0, Format::q8_0, Format::f16, 96, 40},
        {Format::q4_k, Format::q4_k, Format::q6_k, 256, 256},
        {Format::q4_k, Format::q8_0, Format::iq4_nl, 256, 32},
        {Format::q5_k, Format::iq4_xs, Format::q3_k, 512, 512},
    };
    for (const Case& c : cases) {
        for (const int64_t n : {1, 2, 7}) {
            INFO(traits(c.gate).name << " " << traits(c.up).name << " " << traits(c.down).name << " rows "
                                     << n);
            Random random(static_cast<uint32_t>(n));
            Layer layer(c.gate, c.up, c.down, 5, c.hidden, c.ff, random);
            layer.weights.up.scale = {1.0F, 0.5F, 2.0F, -1.0F, 0.1F};
            const Batch batch(n, 2, 5, c.hidden, random);
            const std::vector<float> y = experts(detected_cpu_level(), 2, layer, batch, n);
            // A product near the middle of two codes may be rounded to the other one: an error of one step of 127.
            const bool exact_input =
                cpu::linear_kernel(cpu::k_scalar_kernels, c.down) == nullptr ||
                cpu::linear_kernel(cpu::k_scalar_kernels, c.down)->activation == cpu::Activation::f32;
            CHECK(relative_difference(y, experts_exactly(layer, batch)) <= (exact_input ? 2e-6 : 1e-3));
        }
    }
}

TEST_CASE("a row of experts has the same bits whatever the batch, the threads and the instruction set") {
    for (const Format format : {Format::f32, Format::q8_0, Format::q4_k, Format::q5_k}) {
        Random random(17);
        const Layer layer(format, format, format, 6, 256, 256, random);
        const Batch batch(11, 3, 6, 256, random);
        const std::vector<float> expected = experts(CpuLevel::scalar, 1, layer, batch, 11);
        for (const CpuLevel level : cpu_levels()) {
            for (const int32_t n_threads : {1, 2, 3}) {
                for (const int64_t chunk : {1, 4, 11}) {
                    if (level == CpuLevel::scalar && n_threads != 2) continue;
                    INFO(traits(format).name << " " << to_string(level) << " threads " << n_threads
                                             << " chunk " << chunk);
                    CHECK(same_bits(experts(level, n_threads, layer, batch, chunk), expected));
                }
            }
        }
    }
}

TEST_CASE("an expert takes more rows than a thread holds at once") {
    Random random(3);
    const int64_t n = 2 * cpu::k_gate_tile_tokens + 5;
    for (const Format format : {Format::f32, Format::q8_0}) {
        const Layer layer(format, format, format, 2, 64, cpu::k_gate_tile_rows + 32, random);
        const Batch batch(n, 1, 1, 64, random);
        const std::vector<float> one_by_one = experts(detected_cpu_level(), 1, layer, batch, 1);
        CHECK(same_bits(experts(detected_cpu_level(), 2, layer, batch, n), one_by_one));
    }
}

TEST_CASE("experts of an empty batch do nothing, and unused experts are never read") {
    Random random(2);
    Layer layer(Format::f32, Format::f32, Format::f32, 4, 32, 32, random);
    const Batch none(0, 2, 4, 32, random);
    CHECK(experts(detected_cpu_level(), 2, layer, none, 1).empty());
    Batch batch(3, 1, 4, 32, random);
    std::fill(batch.ids.begin(), batch.ids.end(), 2);
    const std::vector<float> expected = experts(detected_cpu_level(), 1, layer, batch, 3);
    for (const size_t e : {size_t{0}, size_t{1}, size_t{3}}) {
        layer.weights.gate.expert[e] = layer.weights.up.expert[e] = layer.weights.down.expert[e] = nullptr;
    }
    CHECK(same_bits(experts(detected_cpu_level(), 2, layer, batch, 3), expected));
}

TEST_CASE("experts on two backends, in any parts, give the bits of one", "[slow-emulated]") {
    for (const Format format : {Format::f32, Format::q8_0, Format::q4_k}) {
        Random random(29);
        const Layer layer(format, format, format, 6, 256, 256, random);
        for (const int64_t n : {1, 2, 9}) {
            const Batch batch(n, 3, 6, 256, random);
            const std::vector<float> expected = experts(detected_cpu_level(), 1, layer, batch, n);
            const ThreadPool pool(2);
            for (uint32_t subset = 0; subset < 64; ++subset) {
                INFO(traits(format).name << " rows " << n << " subset " << subset);
                std::vector<float> out(static_cast<size_t>(n * 3 * layer.hidden), NAN);
                std::vector<float> y = batch.y;
                const auto backend = subset % 5 == 0 ? reference::make_reference_backend()
                                                     : cpu::make_cpu_backend(pool, detected_cpu_level());
                const bool is_reference = subset % 5 == 0;
                const auto scratch = backend->reserve({.n_rows = n,
                                                       .hidden = layer.hidden,
                                                       .n_expert = 6,
                                                       .n_expert_used = 3,
                                                       .expert_ff = layer.ff});
                for (const uint32_t here : {subset, 63 - subset}) {
                    std::vector<uint8_t> is_on_device;
                    ExpertWeights weights = layer.weights;
                    for (size_t e = 0; e < 6; ++e) {
                        is_on_device.push_back((here >> e & 1U) == 0 ? 1 : 0);
                        if (is_on_device[e] == 1)  // must not be read
                            weights.gate.expert[e] = weights.up.expert[e] = weights.down.expert[e] = nullptr;
                    }
                    weights.is_on_device = is_on_device.data();
                    backend->expert_slots(*scratch, batch.h.data(), n, batch.ids.data(), 3, weights,
                                          out.data());
                }
                backend->add_slots(*scratch, out.data(), batch.gates.data(), n, 3, layer.hidden, y.data());
                if (!is_reference) {
                    CHECK(same_bits(y, expected));
                    continue;
                }
                std::vector<float> at_once = batch.y;
                backend->experts(*scratch, batch.h.data(), n, batch.ids.data(), batch.gates.data(), 3,
                                 layer.weights, at_once.data(), true);
                CHECK(same_bits(y, at_once));
            }
        }
    }
}

TEST_CASE("observed slots have the same outputs, and the inputs of down before they are rounded") {
    const int64_t n = cpu::k_gate_tile_tokens + 3;
    constexpr int64_t k_ff = cpu::k_gate_tile_rows + 32;
    for (const Format format : {Format::f32, Format::q8_0, Format::q4_0}) {
        Random random(31);
        const Layer layer(format, format, format, 4, 64, k_ff, random);
        const Batch batch(n, 2, 4, layer.hidden, random);
        const auto observe = [&](const backend::HostDevice& backend, const ExpertWeights& weights,
                                 std::vector<float>& middle, std::vector<float>& out) {
            const auto scratch = backend.reserve(
                {.n_rows = n, .hidden = layer.hidden, .n_expert = 4, .n_expert_used = 2, .expert_ff = k_ff});
            backend.observe_slots(*scratch, batch.h.data(), n, batch.ids.data(), 2, weights, middle.data(),
                                  out.data());
            std::vector<float> plain(out.size(), NAN);
            backend.expert_slots(*scratch, batch.h.data(), n, batch.ids.data(), 2, weights, plain.data());
            CHECK(same_bits(plain, out));
        };
        const auto n_slots = static_cast<size_t>(2 * n);
        std::vector<float> middle(n_slots * k_ff, NAN);
        std::vector<float> out(n_slots * static_cast<size_t>(layer.hidden), NAN);
        std::vector<float> expected = middle;
        std::vector<float> expected_out = out;
        const ThreadPool pool(2);
        const auto cpu_backend = cpu::make_cpu_backend(pool, detected_cpu_level());
        observe(*cpu_backend, layer.weights, middle, out);
        observe(*reference::make_reference_backend(), layer.weights, expected, expected_out);
        double error = 0.0;
        double sum = 0.0;
        for (size_t i = 0; i < middle.size(); ++i) {
            error += std::pow(static_cast<double>(middle[i] - expected[i]), 2);
            sum += std::pow(static_cast<double>(expected[i]), 2);
        }
        INFO(traits(format).name);
        // Quantised weights multiply inputs of 8 bits.
        CHECK(std::sqrt(error / sum) < (format == Format::f32 ? 1e-5 : 2e-2));

        // Slots whose expert is on another device stay as they are.
        const std::vector<uint8_t> is_on_device = {1, 0, 1, 1};
        ExpertWeights one = layer.weights;
        one.is_on_device = is_on_device.data();
        std::vector<float> some(middle.size(), -1.0F);
        std::vector<float> some_out(out.size(), NAN);
        observe(*cpu_backend, one, some, some_out);
        for (size_t slot = 0; slot < n_slots; ++slot) {
            const float* row = some.data() + slot * k_ff;
            const float* whole = middle.data() + slot * k_ff;
            CHECK(std::equal(row, row + k_ff, whole) == (batch.ids[slot] == 1));
            if (batch.ids[slot] != 1) CHECK(std::count(row, row + k_ff, -1.0F) == k_ff);
        }
    }
}

}  // namespace minim::test
