// SPDX-License-Identifier: Apache-2.0
#include "gpu/selfcheck/rig.h"

#include <algorithm>
#include <cstring>

namespace minim::selfcheck {
namespace {

constexpr int64_t k_random_rows = 509;  // a prime: the strides below go through all of them

}  // namespace

Shapes reduced_shapes() {
    return {.hidden = 512,
            .n_head = 6,
            .n_head_kv = 1,
            .head_dim = 128,
            .n_route_expert = 32,
            .n_expert = 9,
            .n_used = 4,
            .expert_ff = 256,
            .n_vocab = 3000,
            .head_rows = 160,
            .few_and_many = {1, 4, 5, 65, 130},
            .route_rows = {1, 5, 33},
            .attend_rows = {1, 5, 20},
            .contexts = {1, 64, 65, 260},
            .long_context = 3000,
            .host_context = 130};
}

Device::Device(std::shared_ptr<const backend::Backend> backend, const backend::StepLimits& limits)
    : backend_(std::move(backend)), stream_(backend_->reserve(limits)) {}

std::byte* Device::room(uint64_t bytes) {
    memory_.push_back(backend_->allocate(bytes, "the self-check"));
    return memory_.back()->data();
}

std::byte* Device::put(std::span<const std::byte> bytes) {
    std::byte* data = room(bytes.size());
    backend_->write(data, bytes.data(), bytes.size());
    return data;
}

backend::ExpertWeights Device::with_table(backend::ExpertWeights weights) {
    if (!backend_->uses_host_memory()) weights.places = put(backend::places_of(weights));
    return weights;
}

backend::Matrix Device::put(const backend::Matrix& matrix, std::span<const std::byte> bytes) {
    backend::Matrix own = matrix;
    own.packed = backend_->packs(own.format);
    if (const backend::HostDevice* host = backend_->host(); own.packed && host != nullptr) {
        std::byte* packed = room(bytes.size());
        const int64_t together = host->pack_rows_together();
        host->run_tasks((own.rows + together - 1) / together, [&](int64_t i, int32_t) {
            const auto first = static_cast<uint64_t>(i * together * own.row_bytes);
            backend::Matrix some = matrix;
            some.rows = std::min(together, own.rows - i * together);
            host->pack_rows(some, bytes.data() + first, packed + first);
        });
        own.data = packed;
        return own;
    }
    std::byte* data = put(bytes);
    own.data = data;
    if (own.packed) backend_->pack({&data, 1}, matrix);
    return own;
}

std::vector<float> Device::get(const float* data, int64_t count) {
    backend_->synchronize(*stream_);
    std::vector<float> values(static_cast<size_t>(count));
    backend_->read(reinterpret_cast<std::byte*>(values.data()), reinterpret_cast<const std::byte*>(data),
                   values.size() * sizeof(float));
    return values;
}

Rows::Rows(Format format, int64_t cols)
    : some_([&] {
          test::Random random(7);
          return test::TestMatrix(format, k_random_rows, cols, random);
      }()) {}

std::vector<std::byte> Rows::bytes(int64_t rows, int64_t number) const {
    const auto row_bytes = static_cast<size_t>(some_.view.row_bytes);
    std::vector<std::byte> all(static_cast<size_t>(rows) * row_bytes);
    for (int64_t r = 0; r < rows; ++r) {
        const int64_t from = (r * 211 + r / k_random_rows * 7 + number * 97) % k_random_rows;
        std::memcpy(all.data() + static_cast<size_t>(r) * row_bytes,
                    some_.bytes.data() + static_cast<size_t>(from) * row_bytes, row_bytes);
    }
    return all;
}

backend::Matrix Rows::shape(int64_t rows) const {
    backend::Matrix matrix = some_.view;
    matrix.data = nullptr;
    matrix.rows = rows;
    return matrix;
}

}  // namespace minim::selfcheck
