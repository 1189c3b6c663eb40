// SPDX-License-Identifier: Apache-2.0
// Norm, products, the router and experts on the GPU, compared with the CPU.
#include <cmath>
#include <numeric>
#include <string>

#include "base/format_text.h"
#include "cuda/debug.h"
#include "gpu/selfcheck/report.h"
#include "gpu/selfcheck/rig.h"

namespace minim::selfcheck {
namespace {

using backend::ExpertStack;
using backend::ExpertWeights;
using backend::LinearTask;
using backend::Matrix;

// Up to this row count experts are also computed in two halves, which must give the same bits.
constexpr int64_t k_max_halved = 65;
// From this row count on a GPU rounds the inputs of float weights (cuda/fast_step.cpp).
constexpr int64_t k_min_rounded_rows = 5;

// Products of packed weights have the same integer sums, added up in another order. Inputs of BF16 weights are rounded to 8
// bits, those of F16 and FP8 to 11. The tile kernel (MINIM_CUDA_PATHS=tiles) rounds packed weights and their scales to 11.
double expected_error(Format format, int64_t n) {
    const bool is_rounded = n >= k_min_rounded_rows;
    if (format == Format::bf16) return is_rounded ? 3e-3 : 2e-5;
    if (format == Format::fp8_e4m3_b128 || format == Format::f16) return is_rounded ? 1e-3 : 2e-5;
    return is_rounded && cuda::launch_paths().tiles ? 1e-3 : 2e-5;
}

bool is_packed(const Rig& rig, Format format) {
    return rig.gpu.backend().packs(format);
}

// Inputs that both devices quantise without a change, although they round differently: in each block of 32 one is 127 times a
// power of two and the others are smaller multiples of it.
std::vector<float> quantised_inputs(test::Random& random, int64_t count) {
    std::vector<float> x(static_cast<size_t>(count));
    for (size_t block = 0; block < x.size(); block += 32) {
        const float scale = std::ldexp(1.0F, static_cast<int>(random.below(3)) - 7);
        for (size_t i = 0; i < 32; ++i) x[block + i] = scale * static_cast<float>(random.below(127) - 63);
        const auto peak = static_cast<size_t>(random.below(16)) * 2;
        x[block + peak] = 127.0F * scale;
        x[block + peak + 1] = -std::abs(x[block + peak + 1]);  // the CPU keeps sums of neighbours below 129
    }
    return x;
}

std::vector<float> inputs_for(Rig& rig, Format format, int64_t count) {
    return is_packed(rig, format) ? quantised_inputs(rig.random, count) : rig.random.normal(count);
}

std::string name_of(Format format) {
    return std::string(traits(format).name);
}

struct LinearCase {
    Format format;
    std::vector<int64_t> rows;  // of matrices that share their input
    int64_t cols;
    int64_t most_inputs;
};

std::vector<float> multiply(Device& device, const LinearCase& c, const std::vector<Matrix>& weights,
                            const std::vector<float>& x, int64_t n) {
    const float* h = device.put(x);
    std::vector<LinearTask> tasks;
    for (const Matrix& weight : weights) {
        // The last product is added to an existing sum.
        const std::vector<float> before(static_cast<size_t>(n * weight.rows), 0.5F);
        tasks.push_back({&weight, device.put(before), &weight == &weights.back()});
    }
    device.backend().linear(device.stream(), h, n, tasks);
    std::vector<float> all;
    for (size_t i = 0; i < tasks.size(); ++i) {
        const std::vector<float> y = device.get(tasks[i].y, n * c.rows[i]);
        all.insert(all.end(), y.begin(), y.end());
    }
    return all;
}

void check(Rig& rig, Report& report, const LinearCase& c) {
    std::string name = format_text("linear {}", name_of(c.format));
    for (const int64_t rows : c.rows) name += format_text(" {}", rows);
    name += format_text(" x {}", c.cols);
    if (!report.wants(name)) return;
    const Rows source(c.format, c.cols);
    for (const int64_t n : rig.shapes.few_and_many) {
        if (n > c.most_inputs) break;
        rig.gpu.clear();
        rig.host.clear();
        std::vector<Matrix> on_gpu;
        std::vector<Matrix> on_host;
        for (size_t i = 0; i < c.rows.size(); ++i) {
            const std::vector<std::byte> bytes = source.bytes(c.rows[i], static_cast<int64_t>(i));
            on_gpu.push_back(rig.gpu.put(source.shape(c.rows[i]), bytes));
            on_host.push_back(rig.host.put(source.shape(c.rows[i]), bytes));
        }
        const std::vector<float> x = inputs_for(rig, c.format, n * c.cols);
        report.add(format_text("{}, {} inputs", name, n),
                   relative_error(multiply(rig.gpu, c, on_gpu, x, n), multiply(rig.host, c, on_host, x, n)),
                   expected_error(c.format, n));
    }
}

struct ExpertsCase {
    Format gate_up;
    Format down;
};

ExpertStack stack_of(Device& device, const Rows& source, int64_t rows, int64_t n_expert, int64_t first) {
    ExpertStack stack;
    for (int64_t e = 0; e < n_expert; ++e) {
        const Matrix matrix = device.put(source.shape(rows), source.bytes(rows, first + e));
        stack.expert.push_back(matrix.data);
        stack.scale.push_back(1.0F + 0.01F * static_cast<float>(e));
        stack.packed = matrix.packed;
        stack.format = matrix.format;
        stack.rows = matrix.rows;
        stack.cols = matrix.cols;
        stack.row_bytes = matrix.row_bytes;
    }
    return stack;
}

// Draws experts by Zipf's law, so that one expert gets more than a tile of slots and some get none; a row has no expert
// twice.
std::vector<int32_t> drawn_experts(test::Random& random, int64_t n, int64_t n_expert, int64_t n_used) {
    std::vector<double> weight(static_cast<size_t>(n_expert));
    for (size_t e = 0; e < weight.size(); ++e) weight[e] = 1.0 / static_cast<double>(e + 1);
    std::vector<int32_t> ids;
    for (int64_t row = 0; row < n; ++row) {
        std::vector<double> left = weight;
        for (int64_t k = 0; k < n_used; ++k) {
            double at = std::accumulate(left.begin(), left.end(), 0.0) *
                        static_cast<double>(random.below(1 << 20)) / (1 << 20);
            size_t e = 0;
            while (e + 1 < left.size() && (left[e] == 0.0 || at >= left[e])) at -= left[e++];
            while (left[e] == 0.0) --e;
            left[e] = 0.0;
            ids.push_back(static_cast<int32_t>(e));
        }
    }
    return ids;
}

std::vector<float> add_experts(Device& device, const ExpertWeights& weights, const std::vector<float>& x,
                               const std::vector<int32_t>& ids, const std::vector<float>& gates, int64_t n,
                               int64_t n_used) {
    const float* h = device.put(x);
    float* y = device.put(x);  // added to the value in memory
    device.backend().experts(device.stream(), h, n, device.put(ids), device.put(gates), n_used, weights, y,
                             true);
    return device.get(y, n * weights.down.rows);
}

// Computes the same in two halves: the slots of even experts, then those of odd ones, and their sum.
std::vector<float> add_slots(Device& device, const ExpertWeights& weights, const std::vector<float>& x,
                             const std::vector<int32_t>& ids, const std::vector<float>& gates, int64_t n,
                             int64_t n_used) {
    const backend::Backend& backend = device.backend();
    const int64_t hidden = weights.down.rows;
    const float* h = device.put(x);
    const int32_t* own_ids = device.put(ids);
    auto* out =
        reinterpret_cast<float*>(device.room(static_cast<uint64_t>(n * n_used * hidden) * sizeof(float)));
    for (const int64_t half : {0, 1}) {
        std::vector<backend::ExpertPlace> places = backend::places_of(weights);
        for (int64_t e = 0; e < weights.n_expert(); ++e)
            if (e % 2 != half) places[static_cast<size_t>(e)] = {};
        ExpertWeights some = weights;
        some.places = device.put(places);
        backend.expert_slots(device.stream(), h, n, own_ids, n_used, some, out);
    }
    float* y = device.put(x);
    backend.add_slots(device.stream(), out, device.put(gates), n, n_used, hidden, y);
    return device.get(y, n * hidden);
}

void check(Rig& rig, Report& report, const ExpertsCase& c) {
    const Shapes& s = rig.shapes;
    const std::string name = format_text("experts {} {} of {} {} x {}", name_of(c.gate_up), name_of(c.down),
                                         s.n_expert, s.expert_ff, s.hidden);
    if (!report.wants(name)) return;
    rig.gpu.clear();
    rig.host.clear();
    const Rows in(c.gate_up, s.hidden);
    const Rows out(c.down, s.expert_ff);
    const auto weights_on = [&](Device& device) {
        return device.with_table({stack_of(device, in, s.expert_ff, s.n_expert, 0),
                                  stack_of(device, in, s.expert_ff, s.n_expert, 300),
                                  stack_of(device, out, s.hidden, s.n_expert, 100)});
    };
    const ExpertWeights on_gpu = weights_on(rig.gpu);
    const ExpertWeights on_host = weights_on(rig.host);
    for (const int64_t n : s.few_and_many) {
        const std::vector<float> x = inputs_for(rig, c.gate_up, n * s.hidden);
        const std::vector<int32_t> ids = drawn_experts(rig.random, n, s.n_expert, s.n_used);
        std::vector<float> gates = rig.random.normal(n * s.n_used);
        for (float& gate : gates) gate = std::abs(gate);
        // For packed weights the slots' inputs are rounded to 8 bits between the two products, and the devices round
        // differently.
        const double rounding = is_packed(rig, c.down) ? 2.5e-2 : c.down == Format::bf16 ? 5e-3 : 1e-3;
        const double expected = std::max({expected_error(c.gate_up, n), expected_error(c.down, n), rounding});
        const std::vector<float> result = add_experts(rig.gpu, on_gpu, x, ids, gates, n, s.n_used);
        report.add(format_text("{}, {} inputs", name, n),
                   relative_error(result, add_experts(rig.host, on_host, x, ids, gates, n, s.n_used)),
                   expected);
        if (n > k_max_halved) continue;
        report.add(format_text("{}, {} inputs: two halves", name, n),
                   relative_error(add_slots(rig.gpu, on_gpu, x, ids, gates, n, s.n_used), result), 1e-9);
    }
}

struct Routed {
    std::vector<int32_t> ids;
    std::vector<float> gates;
};

Routed route(Device& device, const Matrix& router, const std::vector<float>& bias,
             const std::vector<float>& x, int64_t n, int64_t n_used) {
    const auto n_slots = static_cast<size_t>(n * n_used);
    int32_t* ids = device.put(std::vector<int32_t>(n_slots, -1));
    float* gates = device.put(std::vector<float>(n_slots, NAN));
    device.backend().route(device.stream(), device.put(x), n, router, {device.put(bias), router.rows}, n_used,
                           ids, gates);
    Routed routed;
    routed.gates = device.get(gates, n * n_used);
    routed.ids.resize(n_slots);
    device.backend().read(reinterpret_cast<std::byte*>(routed.ids.data()),
                          reinterpret_cast<const std::byte*>(ids), n_slots * sizeof(int32_t));
    return routed;
}

// Returns the score plus bias of an expert for a row, in double precision.
double order_of(const std::vector<std::byte>& router, int64_t cols, const std::vector<float>& bias,
                const float* x, int32_t expert) {
    const auto* row = reinterpret_cast<const float*>(router.data()) + expert * cols;
    double sum = 0.0;
    for (int64_t c = 0; c < cols; ++c) sum += static_cast<double>(row[c]) * static_cast<double>(x[c]);
    return 1.0 / (1.0 + std::exp(-sum)) + static_cast<double>(bias[static_cast<size_t>(expert)]);
}

}  // namespace

void check_norm(Rig& rig, Report& report) {
    if (!report.wants("norm")) return;
    const int64_t size = rig.shapes.hidden;
    for (const int64_t n : {int64_t{1}, int64_t{5}, rig.shapes.most_rows()}) {
        rig.gpu.clear();
        rig.host.clear();
        const std::vector<float> x = rig.random.normal(n * size);
        const std::vector<float> weight = rig.random.normal(size);
        const auto normed = [&](Device& device) {
            float* h = device.put(std::vector<float>(x.size(), NAN));
            device.backend().norm(device.stream(), device.put(x), n, {device.put(weight), size}, 1e-6F, h);
            return device.get(h, n * size);
        };
        report.add(format_text("norm of {}, {} rows", size, n),
                   relative_error(normed(rig.gpu), normed(rig.host)), 1e-6);
    }
}

void check_linear(Rig& rig, Report& report) {
    const Shapes& s = rig.shapes;
    const int64_t q_width = s.n_head * s.head_dim;
    const int64_t kv_width = s.n_head_kv * s.head_dim;
    for (const Format format : {Format::q8_0, Format::q4_k, Format::q6_k, Format::iq4_xs, Format::iq5_k,
                                Format::bf16, Format::fp8_e4m3_b128}) {
        check(rig, report, {format, {q_width, kv_width, kv_width}, s.hidden, s.most_rows()});
        check(rig, report, {format, {s.hidden}, q_width, s.most_rows()});
        check(rig, report, {format, {s.head_rows}, s.hidden, 65});
    }
}

void check_route(Rig& rig, Report& report) {
    const Shapes& s = rig.shapes;
    if (!report.wants("route")) return;
    const Rows source(Format::f32, s.hidden);
    std::vector<std::byte> bytes = source.bytes(s.n_route_expert, 0);
    auto* values = reinterpret_cast<float*>(bytes.data());
    for (int64_t i = 0; i < s.n_route_expert * s.hidden; ++i) values[i] *= 0.02F;
    for (const int64_t n : s.route_rows) {
        rig.gpu.clear();
        rig.host.clear();
        const std::vector<float> x = rig.random.normal(n * s.hidden);
        const std::vector<float> bias = rig.random.normal(s.n_route_expert, 0.1F);
        const auto routed_on = [&](Device& device) {
            return route(device, device.put(source.shape(s.n_route_expert), bytes), bias, x, n, s.n_used);
        };
        const Routed a = routed_on(rig.gpu);
        const Routed b = routed_on(rig.host);
        // Scores that are nearly equal may come in another order.
        int64_t n_near = 0;
        double worst = 0.0;
        for (size_t i = 0; i < a.ids.size(); ++i) {
            if (a.ids[i] == b.ids[i]) continue;
            const float* row = x.data() + static_cast<int64_t>(i) / s.n_used * s.hidden;
            if (a.ids[i] < 0 || a.ids[i] >= s.n_route_expert) {
                worst = NAN;
                break;
            }
            const double gap = std::abs(order_of(bytes, s.hidden, bias, row, a.ids[i]) -
                                        order_of(bytes, s.hidden, bias, row, b.ids[i]));
            worst = std::max(worst, gap);
            ++n_near;
        }
        const std::string name = format_text("route {} experts, {} rows", s.n_route_expert, n);
        report.add(name + ": ids", worst, 1e-6);
        if (n_near > 0)
            report.note(format_text("{} of {} ids differ, of nearly equal scores", n_near, a.ids.size()));
        report.add(name + ": gates", relative_error(a.gates, b.gates), n_near == 0 ? 1e-5 : 1e-4);
    }
}

void check_experts(Rig& rig, Report& report) {
    const ExpertsCase all[] = {{Format::iq2_s, Format::iq2_s},
                               {Format::iq2_s, Format::iq3_s},
                               {Format::iq4_xs, Format::iq4_xs},
                               {Format::q4_k, Format::q4_k},
                               {Format::iq5_k, Format::iq6_k},
                               {Format::q8_0, Format::q8_0},
                               {Format::fp8_e4m3_b128, Format::fp8_e4m3_b128},
                               {Format::bf16, Format::bf16},
                               {Format::nvfp4, Format::nvfp4}};
    for (const ExpertsCase& c : all) check(rig, report, c);
}

}  // namespace minim::selfcheck
