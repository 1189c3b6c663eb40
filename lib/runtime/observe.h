// SPDX-License-Identifier: Apache-2.0
// Sums over the inputs of a model's weight matrices, which the forward pass hands over while it computes: importance data. The
// inputs are those of the operations, before a backend rounds them.
//
//     attention      normalised x             q, k and v projections
//     projection     output of the attention  output projection
//     experts        normalised x             gate and up of the experts that a row chose
//     middle         act(gate) * up           down of these experts
//     dense          normalised x             gate and up of the feed-forward that every row takes
//     dense_middle   act(gate) * up           down of this one
//     head           normalised x             output head
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "backend/host_device.h"
#include "runtime/architecture.h"

namespace minim::runtime {

enum class Input : uint8_t { attention, projection, experts, middle, dense, dense_middle, head };
inline constexpr size_t k_inputs = 7;

// The feed-forwards of a layer.
struct LayerFeedForwards {
    bool has_experts = true;
    int64_t dense_ff = 0;  // width of the one that every row takes; 0: there is none
};

// The sums of the inputs of one matrix, or of a stack of experts.
struct InputSums {
    int64_t columns = 0;
    std::vector<double> squares;  // [matrices, columns]
    std::vector<int64_t> rows;    // [matrices]: that reached the matrix
    std::vector<float> peaks;     // [matrices]: largest magnitude
    std::vector<double> norms;    // [matrices]: sum of gate * norm of the output; of `middle` alone

    int64_t matrices() const noexcept { return std::ssize(rows); }
};

// The sums of all matrices. A row adds to each sum in the order of rows, so sums do not depend on threads and on how a text is cut
// into steps. Any thread.
class ObservedInputs {
  public:
    // `threads`: whose threads add; null: the caller's alone. It must outlive this. chunk_size: tokens of a chunk, at least 1, for messages.
    // Throws out_of_memory.
    ObservedInputs(const backend::StepLimits& shape, std::span<const LayerFeedForwards> layers,
                   bool with_head, int64_t chunk_size, const backend::HostDevice* threads);

    int64_t n_layer() const noexcept { return std::ssize(layers_); }
    bool with_head() const noexcept { return head_.columns > 0; }
    // Returns the rows of the first layer.
    int64_t n_rows() const;

    // Calls visit(layer, input, sums) for the sums of each input that a layer has, while no thread adds. The layer of the head is
    // n_layer().
    template <typename Visit>
    void for_each(const Visit& visit) const {
        const std::lock_guard lock(mutex_);
        for (size_t layer = 0; layer < layers_.size(); ++layer)
            for (size_t input = 0; input < layers_[layer].size(); ++input)
                if (layers_[layer][input].matrices() > 0)
                    visit(static_cast<int64_t>(layer), static_cast<Input>(input), layers_[layer][input]);
        if (with_head()) visit(n_layer(), Input::head, head_);
    }

    // Add n rows in host memory. Throw format, naming layer, input, expert and chunk, for values that are not finite; the rows
    // are then added in part.
    void add(int64_t layer, Input input, int64_t n, const float* x);
    // h [n, hidden], middle [n, ff].
    void add_dense(int64_t layer, int64_t n, const float* h, const float* middle);
    // h [n, hidden], ids and gates [n, n_used], middle [n * n_used, ff], out [n * n_used, hidden]: outputs of the experts.
    void add_experts(int64_t layer, int64_t n, int64_t n_used, const float* h, const int32_t* ids,
                     const float* gates, const float* middle, const float* out);

  private:
    using Layer = std::vector<InputSums>;  // by Input, without the head

    void add_slots(int64_t layer, Input input, int64_t n_used, const float* x, std::span<const int32_t> ids);
    void run_tasks(int64_t n_tasks, const std::function<void(int64_t index, int32_t thread)>& task) const;
    [[noreturn]] void fail_not_finite(int64_t layer, Input input, int64_t matrix) const;

    const int64_t chunk_size_;
    const backend::HostDevice* const threads_;
    mutable std::mutex mutex_;
    std::vector<Layer> layers_;
    InputSums head_;
};

// Hands the inputs of the steps of one stream over. One thread at a time.
class InputObserver {
  public:
    explicit InputObserver(std::shared_ptr<ObservedInputs> inputs) : inputs_(std::move(inputs)) {}

    bool sees_head() const noexcept { return inputs_->with_head(); }

    // Called in this order, after the operations that compute the inputs. See the rows of `a`: h and o, and h.
    void see_attention(const Activations& a, const backend::StepLimits& shape, int64_t layer);
    void see_head(const Activations& a, const backend::StepLimits& shape);

    // x += experts of h, with the additions of Operations::experts().
    void add_experts(const Activations& a, const backend::StepLimits& shape, int64_t layer,
                     const backend::ExpertWeights& weights);
    // x += dense feed-forward of h, with the same additions.
    void add_dense(const Activations& a, const backend::StepLimits& shape, int64_t layer,
                   const backend::ExpertWeights& weights);

  private:
    // Returns `count` values on the host: those of the device if it computes on host memory, else a copy.
    template <typename T>
    const T* on_host(const Activations& a, const T* values, int64_t count,
                     std::vector<std::byte>& copy) const;

    // Returns memory for `count` floats on the device of `a`, the same one again if it is large enough.
    float* floats_on(const Activations& a, int64_t count);

    const std::shared_ptr<ObservedInputs> inputs_;
    // The input of `down`, and the outputs of the experts, on each device.
    std::map<const backend::Backend*, std::unique_ptr<backend::Memory>> slots_;
    std::vector<std::byte> copies_[5];
};

}  // namespace minim::runtime
