// SPDX-License-Identifier: Apache-2.0
// The devices that the self-check compares, and data in the memory of each.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "backend/host_device.h"
#include "unit/cpu/support.h"

namespace minim::selfcheck {

// What is computed: the model's shapes, or smaller ones for emulated threads.
struct Shapes {
    int64_t hidden = 3072;
    int64_t n_head = 48;
    int64_t n_head_kv = 8;
    int64_t head_dim = 128;
    int64_t n_route_expert = 256;
    int64_t n_expert = 64;
    int64_t n_used = 8;
    int64_t expert_ff = 1536;
    int64_t n_vocab = 200064;
    int64_t head_rows = 50016;
    std::vector<int64_t> few_and_many = {1, 2, 4, 5, 32, 33, 64, 65, 512, 2048};  // rows of a step
    std::vector<int64_t> route_rows = {1, 4, 5, 32, 2048};
    std::vector<int64_t> attend_rows = {1, 2, 5, 64, 300};
    std::vector<int64_t> contexts = {1, 63, 64, 65, 1000, 8192};
    int64_t long_context = 100000;
    int64_t host_context = 1000;

    int64_t most_rows() const { return few_and_many.back(); }
};
Shapes reduced_shapes();

// A backend with a stream, and host data in its memory.
class Device {
  public:
    Device(std::shared_ptr<const backend::Backend> backend, const backend::StepLimits& limits);

    const backend::Backend& backend() const { return *backend_; }
    std::shared_ptr<const backend::Backend> shared() const { return backend_; }
    backend::Scratch& stream() { return *stream_; }

    // Copies the bytes to the device, where they stay until clear().
    std::byte* put(std::span<const std::byte> bytes);
    template <typename T>
    T* put(const std::vector<T>& values) {
        return reinterpret_cast<T*>(put(std::as_bytes(std::span(values))));
    }
    // Returns the weights with the table of their experts, if the backend needs one.
    backend::ExpertWeights with_table(backend::ExpertWeights weights);
    std::byte* room(uint64_t bytes);
    std::vector<float> get(const float* data, int64_t count);
    void clear() { memory_.clear(); }

    // Copies the matrix to the device; packed if the backend packs the format.
    backend::Matrix put(const backend::Matrix& matrix, std::span<const std::byte> bytes);

  private:
    std::shared_ptr<const backend::Backend> backend_;
    std::vector<std::unique_ptr<backend::Memory>> memory_;
    std::unique_ptr<backend::Scratch> stream_;
};

// Makes matrices of any size from the rows of a smaller random one; each matrix has an order of its own.
class Rows {
  public:
    Rows(Format format, int64_t cols);
    // Returns the rows of the matrix `number`, one after the other.
    std::vector<std::byte> bytes(int64_t rows, int64_t number) const;
    backend::Matrix shape(int64_t rows) const;

  private:
    test::TestMatrix some_;
};

struct Rig {
    Shapes shapes;
    Device gpu;
    Device exact;  // on the same GPU, in float arithmetic
    Device host;
    test::Random random{1};
};

class Report;
void check_norm(Rig& rig, Report& report);
void check_linear(Rig& rig, Report& report);
void check_route(Rig& rig, Report& report);
void check_experts(Rig& rig, Report& report);
void check_attend(Rig& rig, Report& report);
void check_top_k(Rig& rig, Report& report);

}  // namespace minim::selfcheck
