// SPDX-License-Identifier: Apache-2.0
#include "model/fingerprint.h"

#include <algorithm>
#include <array>
#include <span>

#include "base/hash.h"

namespace minim::model {
namespace {

using checkpoint::Checkpoint;
using checkpoint::Tensor;

constexpr uint64_t k_wanted_samples = 256;
constexpr uint64_t k_sample_bytes = 256;

template <typename T>
uint64_t hash_value(const T& value, uint64_t seed) {
    return hash_bytes(std::as_bytes(std::span(&value, 1)), seed);
}

uint64_t hash_m3(const Config& config, uint64_t hash) {
    const backend::SparseAttention& sparse = config.sparse_attention;
    for (const int64_t size :
         {config.n_dense_layer, config.shared_ff, config.dense_ff, config.first_sparse_layer, sparse.n_head,
          sparse.dim, sparse.block, sparse.top, sparse.local, sparse.init})
        hash = hash_value(size, hash);
    hash = hash_value(config.activation, hash);
    return hash_value(config.adds_one_to_norms, hash);
}

uint64_t hash_config(const Config& config) {
    uint64_t hash = 0;
    for (const int64_t size :
         {config.n_layer, config.hidden, config.n_head, config.n_head_kv, config.head_dim, config.rotary_dim,
          config.n_expert, config.n_expert_used, config.expert_ff, config.n_vocab})
        hash = hash_value(size, hash);
    hash = hash_value(config.rope_theta, hash);
    hash = hash_value(config.norm_eps, hash);
    hash = hash_value(config.expert_weights_scale, hash);
    return config.family == Family::m2 ? hash : hash_m3(config, hash);
}

uint64_t hash_header(const Tensor& tensor) {
    uint64_t hash = hash_bytes(std::as_bytes(std::span(tensor.name)));
    hash = hash_bytes(std::as_bytes(std::span(tensor.type_name)), hash);
    return hash_bytes(std::as_bytes(std::span(tensor.shape)), hash);
}

// Hashes bytes from the middle of a tensor, because its first rows may be padding.
uint64_t hash_sample(const Checkpoint& checkpoint, const Tensor& tensor, uint64_t seed) {
    const uint64_t count = std::min(tensor.bytes, k_sample_bytes);
    if (count == 0) return seed;
    std::array<std::byte, k_sample_bytes> bytes;
    const std::span sample = std::span(bytes).first(count);
    checkpoint.read(tensor, (tensor.bytes - count) / 2, sample);
    return hash_bytes(sample, seed);
}

}  // namespace

uint64_t fingerprint(const Checkpoint& checkpoint, const Config& config) {
    const uint64_t n_tensors = checkpoint.tensors().size();
    const uint64_t one_in = std::max<uint64_t>(n_tensors / k_wanted_samples, 1);
    // A sum, so that the order of the tensors does not count.
    uint64_t sum = hash_config(config);
    for (const Tensor& tensor : checkpoint.tensors()) {
        const uint64_t hash = hash_header(tensor);
        const bool sampled = hash % one_in == 0;
        sum += sampled ? hash_sample(checkpoint, tensor, hash) : hash;
    }
    return sum;
}

}  // namespace minim::model
