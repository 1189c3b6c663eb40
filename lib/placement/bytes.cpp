// SPDX-License-Identifier: Apache-2.0
#include "placement/bytes.h"

#include <algorithm>

#include "backend/experts.h"
#include "cpu/scratch.h"
#include "kv/page_pool.h"
#include "model/architecture.h"
#include "model/roles.h"
#include "placement/predict.h"
#include "runtime/step_space.h"
#include "weights/device_target.h"

namespace minim::placement {
namespace {

using model::Role;

constexpr uint64_t k_reserve_bytes = uint64_t{512} << 20;
constexpr double k_reserve_part = 0.02;
// The memory that a driver takes for a context and the code of kernels.
constexpr uint64_t k_driver_bytes = uint64_t{500} << 20;
constexpr uint64_t k_staging_bytes = uint64_t{16} << 20;

// Returns the bytes for choosing the blocks of block-sparse attention: index queries and keys, the scores of all blocks of the context,
// and the chosen ones. The host scores some rows at a time.
uint64_t index_bytes(const backend::SparseAttention& index, int64_t n_rows, int64_t n_context,
                     bool is_device) {
    if (index.n_head == 0) return 0;
    const int64_t n_blocks = (n_context + index.block - 1) / index.block;
    const int64_t n_scored = is_device ? n_rows : std::min(n_rows, cpu::k_scored_rows);
    const int64_t n_floats = n_rows * (index.n_head + 1) * index.dim + n_scored * index.n_head * n_blocks;
    return static_cast<uint64_t>(n_floats) * sizeof(float) +
           static_cast<uint64_t>(n_rows * index.n_head * index.top) * sizeof(int32_t);
}

// Returns the approximate bytes of the buffers of a step: activations of rows and of slots, scores, quantised copies, page tables,
// and rows of logits.
uint64_t estimated_bytes(const model::Config& config, int64_t n_rows, int64_t n_context, bool is_device) {
    const auto floats = [](int64_t count) { return static_cast<uint64_t>(count) * sizeof(float); };
    const int64_t slots = n_rows * config.n_expert_used;
    const int64_t q = config.n_head * config.head_dim;
    const int64_t kv = config.n_head_kv * config.head_dim;
    const int64_t longest = std::max(config.hidden, q);
    uint64_t bytes = floats(n_rows * (2 * config.hidden + 2 * q + 2 * kv + 4 * config.n_expert_used));
    const int64_t ff = model::shape_of(config).slot_ff();
    bytes += floats(slots * (ff + std::max(config.hidden, ff)));
    bytes += floats(n_rows * (config.n_expert + longest)) + floats(slots * ff / 2);
    bytes += static_cast<uint64_t>(n_rows * (n_context / backend::k_kv_page_tokens + 1)) * sizeof(uint64_t);
    bytes += floats(std::min<int64_t>(n_rows, 64) * config.n_vocab);
    bytes += index_bytes(config.sparse_attention, n_rows, n_context, is_device);
    if (is_device) bytes += floats(n_rows * q) + k_staging_bytes + k_driver_bytes;
    return bytes;
}

backend::KvLayout kv_layout(const model::Config& config, const Request& request) {
    return backend::kv_layout_of(model::shape_of(config), config.n_layer, request.k_format, request.v_format);
}

}  // namespace

void add_part(std::vector<FormatPart>& parts, const FormatPart& part) {
    auto same = std::ranges::find(parts, part.format, &FormatPart::format);
    if (same == parts.end()) same = parts.insert(parts.end(), {.format = part.format});
    same->bytes += part.bytes;
    same->numbers += part.numbers;
    same->cycles += part.cycles;
}

ModelBytes model_bytes(const model::Config& config, std::span<const weights::WeightSpec> weights,
                       const HostFacts& host) {
    ModelBytes all = {.config = config};
    all.layers.resize(config.n_layer);
    for (const weights::WeightSpec& weight : weights) {
        const auto role = static_cast<Role>(weight.role);
        const double seconds = static_cast<double>(weight.bytes()) / host_rate(host, weight.format);
        const weights::WeightSpec* const one = &weight;
        const uint64_t bytes = weights::device_bytes({&one, 1});
        const FormatPart part = {.format = weight.format,
                                 .bytes = static_cast<double>(bytes),
                                 .numbers = static_cast<double>(weight.rows * weight.cols),
                                 .cycles = decode_cycles(weight.format, weight.rows, weight.cols)};
        LayerBytes& layer = all.layers[std::max(weight.layer, 0)];
        if (role == Role::experts_norm) {
            all.expert_norms += bytes;
        } else if (role == Role::embedding) {
            all.embedding += bytes;
        } else if (weight.layer < 0) {
            all.head += bytes;
            all.head_on_host += seconds;
            add_part(all.head_parts, part);
        } else if (weight.is_expert()) {
            layer.experts += bytes;
            layer.experts_on_host += seconds;
            add_part(layer.expert_parts, part);
            if (role == Role::gate) ++layer.n_experts;
        } else {
            layer.dense += bytes;
            layer.dense_on_host += seconds;
            add_part(layer.dense_parts, part);
        }
    }
    return all;
}

uint64_t kv_bytes(const model::Config& config, const Request& request, int64_t layer, int64_t n_tokens) {
    return static_cast<uint64_t>(kv::page_count(n_tokens) * kv_layout(config, request).layer_bytes(layer));
}

uint64_t kv_read_bytes(const model::Config& config, const Request& request, int64_t layer, int64_t n_tokens) {
    const backend::KvLayout layout = kv_layout(config, request);
    const int64_t n_chosen = config.sparse_attention.top * config.sparse_attention.block;
    if (!layout.has_index(layer) || n_tokens <= n_chosen) return kv_bytes(config, request, layer, n_tokens);
    const int64_t index_bytes = backend::k_kv_page_tokens * layout.index_token_bytes();
    return static_cast<uint64_t>(kv::page_count(n_chosen) * (layout.layer_bytes(layer) - index_bytes) +
                                 kv::page_count(n_tokens) * index_bytes);
}

std::vector<uint64_t> kv_read_bytes(const model::Config& config, const Request& request, int64_t n_tokens) {
    std::vector<uint64_t> all;
    for (int64_t layer = 0; layer < config.n_layer; ++layer)
        all.push_back(kv_read_bytes(config, request, layer, n_tokens));
    return all;
}

uint64_t work_bytes(const ModelBytes& bytes, const Machine& machine, int64_t place, bool has_cache,
                    int64_t n_rows, int64_t n_context) {
    const model::Config& config = bytes.config;
    const bool is_device = place != machine.host_place();
    if (!is_device || !machine.is_open()) return estimated_bytes(config, n_rows, n_context, is_device);
    runtime::Stage alone = {machine.backends[place], config.n_layer};
    alone.experts.assign(config.n_layer, machine.backends[machine.host_place()]);
    alone.cache_bytes = has_cache ? 1 : 0;  // any size makes the work space of shared experts count
    auto work = runtime::step_bytes({&alone, 1}, model::shape_of(config), n_rows, n_context);
    return work[alone.backend.get()] + bytes.expert_norms +
           static_cast<uint64_t>(config.n_expert_layer() * config.n_expert +
                                 (config.family == model::Family::m3 ? config.n_layer : 0)) *
               sizeof(backend::ExpertPlace);
}

uint64_t output_bytes(const model::Config& config, const Machine& machine, int64_t n_rows) {
    if (machine.is_open()) return 0;
    return static_cast<uint64_t>(n_rows * config.n_expert_used * config.hidden) * sizeof(float);
}

uint64_t reserve_of(uint64_t memory_bytes) {
    return std::min(k_reserve_bytes,
                    static_cast<uint64_t>(k_reserve_part * static_cast<double>(memory_bytes)));
}

}  // namespace minim::placement
