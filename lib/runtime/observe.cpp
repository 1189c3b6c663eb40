// SPDX-License-Identifier: Apache-2.0
#include "runtime/observe.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <string_view>

#include "base/error.h"

namespace minim::runtime {
namespace {

// Columns of a matrix that one task adds.
constexpr int64_t k_task_columns = 1024;

// The bits of infinity: those of NaN are larger, those of all other magnitudes smaller.
constexpr int32_t k_infinity_bits = 0x7F800000;

// squares += x^2 over columns of one row. Returns the larger of `peak` and the bits of the largest magnitude: as integers, magnitudes
// and NaN have an order in which the loop can be vectorised.
int32_t add_row(const float* x, int64_t count, double* squares, int32_t peak) {
    for (int64_t i = 0; i < count; ++i) {
        const double value = x[i];
        squares[i] += value * value;
        peak = std::max(peak, std::bit_cast<int32_t>(x[i]) & 0x7FFFFFFF);
    }
    return peak;
}

// Adds in k_lanes sums, which can be vectorised.
double norm_of(const float* x, int64_t count) {
    constexpr int64_t k_lanes = 8;
    std::array<double, k_lanes> sums = {};
    int64_t i = 0;
    for (; i + k_lanes <= count; i += k_lanes) {
        for (int64_t lane = 0; lane < k_lanes; ++lane) {
            const double value = x[i + lane];
            sums[lane] += value * value;
        }
    }
    double sum = 0.0;
    for (const double lane : sums) sum += lane;
    for (; i < count; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
    return std::sqrt(sum);
}

InputSums sums_of(int64_t columns, int64_t matrices, bool has_norms) {
    InputSums sums;
    sums.columns = columns;
    sums.squares.resize(static_cast<size_t>(columns * matrices));
    sums.rows.resize(matrices);
    sums.peaks.resize(matrices);
    if (has_norms) sums.norms.resize(matrices);
    return sums;
}

// The rows of each matrix of a stack, in order.
struct RowsByMatrix {
    std::vector<int64_t> first;  // [matrices + 1]
    std::vector<int64_t> slots;  // those of matrix m: first[m] .. first[m + 1] - 1
};

RowsByMatrix group(std::span<const int32_t> ids, int64_t matrices) {
    RowsByMatrix rows;
    rows.first.resize(matrices + 1);
    for (const int32_t id : ids) ++rows.first[id + 1];
    for (int64_t m = 0; m < matrices; ++m) rows.first[m + 1] += rows.first[m];
    rows.slots.resize(ids.size());
    std::vector<int64_t> next = rows.first;
    for (size_t slot = 0; slot < ids.size(); ++slot)
        rows.slots[next[ids[slot]]++] = static_cast<int64_t>(slot);
    return rows;
}

}  // namespace

ObservedInputs::ObservedInputs(const backend::StepLimits& shape, std::span<const LayerFeedForwards> layers,
                               bool with_head, int64_t chunk_size, const backend::HostDevice* threads)
    : chunk_size_(chunk_size), threads_(threads) {
    for (const LayerFeedForwards& layer : layers) {
        const int64_t n_expert = layer.has_experts ? shape.n_expert : 0;
        const int64_t n_dense = layer.dense_ff > 0 ? 1 : 0;
        layers_.push_back({sums_of(shape.hidden, 1, false), sums_of(shape.n_head * shape.head_dim, 1, false),
                           sums_of(shape.hidden, n_expert, false), sums_of(shape.expert_ff, n_expert, true),
                           sums_of(shape.hidden, n_dense, false), sums_of(layer.dense_ff, n_dense, false)});
    }
    if (with_head) head_ = sums_of(shape.hidden, 1, false);
}

int64_t ObservedInputs::n_rows() const {
    const std::lock_guard lock(mutex_);
    return layers_.empty() ? 0 : layers_.front().front().rows.front();
}

void ObservedInputs::run_tasks(int64_t n_tasks, const std::function<void(int64_t, int32_t)>& task) const {
    if (threads_ != nullptr) return threads_->run_tasks(n_tasks, task);
    for (int64_t i = 0; i < n_tasks; ++i) task(i, 0);
}

void ObservedInputs::fail_not_finite(int64_t layer, Input input, int64_t matrix) const {
    constexpr std::array<std::string_view, k_inputs> k_names = {
        "the input of the attention",
        "the output of the attention",
        "the input of gate and up",
        "the input of down",
        "the input of gate and up that every row takes",
        "the input of down that every row takes",
        "the input of the output head"};
    const bool is_expert = input == Input::experts || input == Input::middle;
    const int64_t n_rows = layers_.front().front().rows.front();
    fail_file(Reason::value, "layer {}{}: {} is not finite in chunk {}", layer,
              is_expert ? format_text(", expert {}", matrix) : "", k_names[static_cast<size_t>(input)],
              (n_rows - 1) / chunk_size_ + 1);
}

// x: one row a slot, or, with n_used above 1, one for n_used slots. ids: the matrix of each slot.
void ObservedInputs::add_slots(int64_t layer, Input input, int64_t n_used, const float* x,
                               std::span<const int32_t> ids) {
    InputSums& sums = input == Input::head ? head_ : layers_[layer][static_cast<size_t>(input)];
    const RowsByMatrix by_matrix = group(ids, sums.matrices());
    const int64_t n_tasks_each = (sums.columns + k_task_columns - 1) / k_task_columns;
    std::vector<int32_t> peaks(static_cast<size_t>(sums.matrices() * n_tasks_each));  // bits
    run_tasks(std::ssize(peaks), [&](int64_t index, int32_t) {
        const int64_t matrix = index / n_tasks_each;
        const int64_t begin = index % n_tasks_each * k_task_columns;
        const int64_t count = std::min(k_task_columns, sums.columns - begin);
        double* squares = sums.squares.data() + matrix * sums.columns + begin;
        int32_t peak = 0;
        for (int64_t i = by_matrix.first[matrix]; i < by_matrix.first[matrix + 1]; ++i) {
            const float* row = x + by_matrix.slots[i] / n_used * sums.columns + begin;
            peak = add_row(row, count, squares, peak);
        }
        peaks[index] = peak;
    });
    for (int64_t matrix = 0; matrix < sums.matrices(); ++matrix)
        sums.rows[matrix] += by_matrix.first[matrix + 1] - by_matrix.first[matrix];
    for (int64_t index = 0; index < std::ssize(peaks); ++index) {
        const int64_t matrix = index / n_tasks_each;
        if (peaks[index] >= k_infinity_bits) fail_not_finite(layer, input, matrix);
        sums.peaks[matrix] = std::max(sums.peaks[matrix], std::bit_cast<float>(peaks[index]));
    }
}

void ObservedInputs::add(int64_t layer, Input input, int64_t n, const float* x) {
    const std::lock_guard lock(mutex_);
    const std::vector<int32_t> one_matrix(n, 0);
    add_slots(layer, input, 1, x, one_matrix);
}

void ObservedInputs::add_dense(int64_t layer, int64_t n, const float* h, const float* middle) {
    add(layer, Input::dense, n, h);
    add(layer, Input::dense_middle, n, middle);
}

void ObservedInputs::add_experts(int64_t layer, int64_t n, int64_t n_used, const float* h, const int32_t* ids,
                                 const float* gates, const float* middle, const float* out) {
    const std::lock_guard lock(mutex_);
    const std::span slots(ids, static_cast<size_t>(n * n_used));
    add_slots(layer, Input::experts, n_used, h, slots);
    add_slots(layer, Input::middle, 1, middle, slots);
    const int64_t hidden = layers_[layer][static_cast<size_t>(Input::experts)].columns;
    std::vector<double> norms(slots.size());
    run_tasks(std::ssize(norms), [&](int64_t slot, int32_t) {
        norms[slot] = std::abs(static_cast<double>(gates[slot])) * norm_of(out + slot * hidden, hidden);
    });
    std::vector<double>& sums = layers_[layer][static_cast<size_t>(Input::middle)].norms;
    for (size_t slot = 0; slot < slots.size(); ++slot) sums[slots[slot]] += norms[slot];
}

template <typename T>
const T* InputObserver::on_host(const Activations& a, const T* values, int64_t count,
                                std::vector<std::byte>& copy) const {
    if (a.backend.uses_host_memory()) return values;
    copy.resize(static_cast<size_t>(count) * sizeof(T));
    a.backend.download(a.scratch, copy.data(), reinterpret_cast<const std::byte*>(values), copy.size());
    return reinterpret_cast<const T*>(copy.data());
}

void InputObserver::see_attention(const Activations& a, const backend::StepLimits& shape, int64_t layer) {
    const float* h = on_host(a, a.h, a.n * shape.hidden, copies_[0]);
    const float* o = on_host(a, a.o, a.n * shape.n_head * shape.head_dim, copies_[1]);
    a.backend.wait(a.scratch);
    inputs_->add(layer, Input::attention, a.n, h);
    inputs_->add(layer, Input::projection, a.n, o);
}

void InputObserver::see_head(const Activations& a, const backend::StepLimits& shape) {
    const float* h = on_host(a, a.h, a.n * shape.hidden, copies_[0]);
    a.backend.wait(a.scratch);
    inputs_->add(inputs_->n_layer(), Input::head, a.n, h);
}

float* InputObserver::floats_on(const Activations& a, int64_t count) {
    const auto bytes = static_cast<uint64_t>(count) * sizeof(float);
    std::unique_ptr<backend::Memory>& memory = slots_[&a.backend];
    if (memory == nullptr || memory->size() < bytes) {
        memory.reset();
        memory = a.backend.allocate(bytes, "inputs of experts");
    }
    return reinterpret_cast<float*>(memory->data());
}

void InputObserver::add_dense(const Activations& a, const backend::StepLimits& shape, int64_t layer,
                              const backend::ExpertWeights& weights) {
    const int64_t n_middle = a.n * weights.gate.rows;
    float* middle = floats_on(a, n_middle + a.n * shape.hidden);
    float* out = middle + n_middle;
    a.backend.observe_slots(a.scratch, a.h, a.n, a.dense_ids, 1, weights, middle, out);
    a.backend.add_slots(a.scratch, out, a.dense_gates, a.n, 1, shape.hidden, a.x);
    const float* h = on_host(a, a.h, a.n * shape.hidden, copies_[0]);
    const float* middle_on_host = on_host(a, middle, n_middle, copies_[1]);
    a.backend.wait(a.scratch);
    inputs_->add_dense(layer, a.n, h, middle_on_host);
}

void InputObserver::add_experts(const Activations& a, const backend::StepLimits& shape, int64_t layer,
                                const backend::ExpertWeights& weights) {
    const int64_t n_used = shape.n_expert_used;
    const int64_t n_slots = a.n * n_used;
    const int64_t n_middle = n_slots * shape.expert_ff;
    const int64_t n_out = n_slots * shape.hidden;
    float* middle = floats_on(a, n_middle + n_out);
    float* out = middle + n_middle;
    a.backend.observe_slots(a.scratch, a.h, a.n, a.ids, n_used, weights, middle, out);
    a.backend.add_slots(a.scratch, out, a.gates, a.n, n_used, shape.hidden, a.x);
    const float* h = on_host(a, a.h, a.n * shape.hidden, copies_[0]);
    const float* middle_on_host = on_host(a, middle, n_middle, copies_[1]);
    const float* out_on_host = on_host(a, out, n_out, copies_[2]);
    const int32_t* ids = on_host(a, a.ids, n_slots, copies_[3]);
    const float* gates = on_host(a, a.gates, n_slots, copies_[4]);
    a.backend.wait(a.scratch);
    inputs_->add_experts(layer, a.n, n_used, h, ids, gates, middle_on_host, out_on_host);
}

}  // namespace minim::runtime
