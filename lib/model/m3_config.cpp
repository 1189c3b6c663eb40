// SPDX-License-Identifier: Apache-2.0
#include "model/m3_config.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "layouts/quantization_config.h"
#include "model/config_check.h"
#include "model/gguf_keys.h"
#include "model/json_values.h"

namespace minim::model {
namespace {

using json::to_text;
using json::Value;

// A value under one of its spellings.
struct Spelling {
    const Value* value;  // null: absent
    const char* key;
};

Spelling spelling(const Value& object, const char* key) {
    return {json_values::find(object, key), key};
}

[[noreturn]] void fail_disagreement(const Spelling& one, const Spelling& other) {
    fail_file(Reason::value, "config.json: {} = {} and {} = {} do not agree", one.key, to_text(*one.value),
              other.key, to_text(*other.value));
}

// Returns the number, which must be the same under both spellings; nothing if both are absent.
std::optional<int64_t> agreed(const Spelling& published, const Spelling& transformers) {
    std::optional<int64_t> number;
    for (const Spelling& one : {published, transformers}) {
        if (one.value == nullptr) continue;
        const int64_t own = json_values::integer(*one.value, one.key);
        if (number && *number != own) fail_disagreement(published, transformers);
        number = own;
    }
    return number;
}

int64_t required(const Spelling& published, const Spelling& transformers) {
    if (const auto number = agreed(published, transformers)) return *number;
    fail_file(Reason::value, "config.json: neither {} nor {} is there", published.key, transformers.key);
}

void check_length(const Spelling& list, int64_t n_layer) {
    if (!list.value->is_array() || std::ssize(list.value->items) != n_layer)
        fail_file(Reason::value, "config.json: {} has not one entry for each of {} layers", list.key,
                  n_layer);
}

// Returns the layers with a 1 in a list of zeros and ones.
std::vector<bool> flags_of(const Spelling& list, int64_t n_layer) {
    check_length(list, n_layer);
    std::vector<bool> flags;
    for (const Value& item : list.value->items) {
        const bool is_one = json_values::is_number(item, 1);
        if (!is_one && !json_values::is_number(item, 0))
            fail_file(Reason::value, "config.json: {} has an entry {}, not 0 or 1", list.key, to_text(item));
        flags.push_back(is_one);
    }
    return flags;
}

// Returns the layers of one of two kinds.
std::vector<bool> flags_of(const Spelling& list, int64_t n_layer, std::string_view kind,
                           std::string_view other_kind) {
    check_length(list, n_layer);
    std::vector<bool> flags;
    for (const Value& item : list.value->items) {
        if (!item.is_string(kind) && !item.is_string(other_kind))
            fail(Status::unsupported, "layer {} is of type {} ({}), which is not supported", flags.size(),
                 to_text(item), list.key);
        flags.push_back(item.is_string(kind));
    }
    return flags;
}

// Returns the number of layers before the first one that is set. All behind it must be set, too.
int64_t count_before(const std::vector<bool>& flags, const char* what) {
    const auto first = std::ranges::find(flags, true);
    const auto odd = std::find(first, flags.end(), false);
    if (odd != flags.end())
        fail(Status::unsupported, "layer {} {}, but layer {} before it does not; this is not supported",
             odd - flags.begin(), what, first - flags.begin());
    return first - flags.begin();
}

// Keeps what a spelling says of the layers. All spellings must say the same.
void agree(const Spelling& spelling, std::vector<bool> flags, Spelling& said,
           std::optional<std::vector<bool>>& known) {
    if (known && *known != flags) fail_disagreement(said, spelling);
    said = spelling;
    known = std::move(flags);
}

// Returns the number of leading layers without experts.
int64_t dense_layers(const Value& object, int64_t n_layer) {
    Spelling said = {};
    std::optional<std::vector<bool>> has_experts;
    if (const Spelling freq = spelling(object, "moe_layer_freq"); freq.value != nullptr)
        agree(freq, flags_of(freq, n_layer), said, has_experts);
    if (const Spelling first = spelling(object, "first_k_dense_replace"); first.value != nullptr) {
        const int64_t n_dense = json_values::integer(*first.value, first.key);
        if (n_dense < 0 || n_dense > n_layer)
            fail_file(Reason::value, "config.json: {} is {} for {} layers", first.key, n_dense, n_layer);
        std::vector<bool> flags(n_layer, true);
        std::fill_n(flags.begin(), n_dense, false);
        agree(first, std::move(flags), said, has_experts);
    }
    if (const Spelling types = spelling(object, "mlp_layer_types"); types.value != nullptr)
        agree(types, flags_of(types, n_layer, "sparse", "dense"), said, has_experts);
    if (!has_experts)
        fail_file(Reason::value, "config.json: none of {}, {} and {} says which layers have experts",
                  "moe_layer_freq", "first_k_dense_replace", "mlp_layer_types");
    return count_before(*has_experts, "has no experts");
}

// Returns the number of leading layers that attend to all keys.
int64_t full_attention_layers(const Value& object, const Value& index, int64_t n_layer) {
    Spelling said = {};
    std::optional<std::vector<bool>> is_sparse;
    const Spelling use = spelling(index, "use_sparse_attention");
    if (use.value != nullptr && use.value->is_boolean() && !use.value->boolean) {
        agree(use, std::vector<bool>(n_layer, false), said, is_sparse);
    } else if (const Spelling freq = spelling(index, "sparse_attention_freq"); freq.value != nullptr) {
        agree(freq, flags_of(freq, n_layer), said, is_sparse);
    } else if (!index.items.empty()) {
        fail_file(Reason::value, "config.json: sparse_attention_freq is missing");
    }
    if (const Spelling types = spelling(object, "layer_types"); types.value != nullptr)
        agree(types, flags_of(types, n_layer, "minimax_m3_sparse", "full_attention"), said, is_sparse);
    return is_sparse ? count_before(*is_sparse, "attends to all keys") : n_layer;
}

// Index values: products that are added to the result of attention. The released model has none.
void refuse_index_values(const Value& index, int64_t first_sparse_layer, int64_t n_layer) {
    const Spelling disabled = spelling(index, "sparse_disable_index_value");
    if (disabled.value == nullptr) return;
    if (!disabled.value->is_array()) {
        if (json_values::is_number(*disabled.value, 1) || disabled.value->boolean) return;
        json_values::refuse(disabled.key, *disabled.value, "attention with index values");
    }
    const std::vector<bool> flags = flags_of(disabled, n_layer);
    const auto odd = std::find(flags.begin() + first_sparse_layer, flags.end(), false);
    if (odd != flags.end())
        fail(Status::unsupported,
             "attention with index values (config.json: {} is 0 for layer {}) is not supported", disabled.key,
             odd - flags.begin());
}

void read_sparse_attention(const Value& object, Config& config) {
    const Value none = {};
    const Value* found = json_values::find(object, "sparse_attention_config");
    if (found != nullptr && !found->is_object())
        json_values::refuse("sparse_attention_config", *found, "sparse attention of this kind");
    const Value& index = found == nullptr ? none : *found;
    for (const Value* holder : {&object, &index})
        for (const char* key : {"sparse_init_tokens", "sparse_local_tokens"})
            json_values::refuse_if_set(*holder, key, "sparse attention counted in tokens");
    if (const Spelling score = spelling(index, "sparse_score_type");
        score.value != nullptr && !score.value->is_string("max"))
        json_values::refuse(score.key, *score.value, "this score of blocks");
    config.first_sparse_layer = full_attention_layers(object, index, config.n_layer);
    if (config.first_sparse_layer == config.n_layer) return;
    refuse_index_values(index, config.first_sparse_layer, config.n_layer);
    const auto required_of = [&](const char* published, const char* transformers) {
        return required(spelling(index, published), spelling(object, transformers));
    };
    config.sparse_attention = {
        .n_head = required_of("sparse_num_index_heads", "index_n_heads"),
        .dim = required_of("sparse_index_dim", "index_head_dim"),
        .block = required_of("sparse_block_size", "index_block_size"),
        .top = required_of("sparse_topk_blocks", "index_topk_blocks"),
        .local =
            agreed(spelling(index, "sparse_local_block"), spelling(object, "index_local_blocks")).value_or(1),
        .init = agreed(spelling(index, "sparse_init_block"), {}).value_or(0)};
}

void read_rotation(const Value& object, Config& config) {
    const Spelling stated = spelling(object, "rotary_dim");
    config.rotary_dim = json_values::rotary_dim(object, config.head_dim);
    config.rope_theta = json_values::rope_theta(object);
    const Value none = {};
    const Value* nested = json_values::find(object, "rope_parameters");
    for (const Value* holder : {&object, nested == nullptr ? &none : nested}) {
        if (const Spelling theta = spelling(*holder, "rope_theta");
            theta.value != nullptr && json_values::number(*theta.value, theta.key) != config.rope_theta)
            fail_file(Reason::value, "config.json: rope_theta is {} and {}", config.rope_theta,
                      theta.value->number);
        const Spelling part = spelling(*holder, "partial_rotary_factor");
        if (part.value == nullptr) continue;
        const double dim = json_values::number(*part.value, part.key) * static_cast<double>(config.head_dim);
        if (std::llround(dim) != config.rotary_dim)
            fail_file(Reason::value,
                      "config.json: partial_rotary_factor = {} of {} components and {} = {} do not agree",
                      to_text(*part.value), config.head_dim, stated.value == nullptr ? "another" : stated.key,
                      config.rotary_dim);
    }
}

// transformers 5 calls the activation "silu", and computes the clamped one all the same.
void read_activation(const Value& object, Config& config) {
    if (const Spelling act = spelling(object, "hidden_act");
        act.value != nullptr && !act.value->is_string("swigluoai") && !act.value->is_string("silu"))
        json_values::refuse(act.key, *act.value, "this activation");
    if (const Spelling beta = spelling(object, "swiglu_beta");
        beta.value != nullptr && !json_values::is_number(*beta.value, 1))
        json_values::refuse(beta.key, *beta.value, "this activation");
    const auto number_or = [&](const char* key, float otherwise) {
        const Spelling own = spelling(object, key);
        return own.value == nullptr ? otherwise : static_cast<float>(json_values::number(*own.value, key));
    };
    config.activation.alpha = number_or("swiglu_alpha", k_m3_activation.alpha);
    config.activation.limit = number_or("swiglu_limit", k_m3_activation.limit);
}

// Refuses values of keys that have one value in every M3 model. transformers 5 leaves these keys out.
void refuse_other_features(const Value& object) {
    json_values::refuse_what_no_family_has(object);
    json_values::refuse_if_set(object, "attention_output_gate", "an output gate of attention");
    const auto is_true = [](const Value& value) { return value.is_boolean() && value.boolean; };
    if (const Spelling norm = spelling(object, "use_gemma_norm");
        norm.value != nullptr && !is_true(*norm.value))
        json_values::refuse(norm.key, *norm.value, "M3 without (1 + weight) normalisation");
    if (const Spelling norm = spelling(object, "qk_norm_type");
        norm.value != nullptr && !norm.value->is_string("per_head"))
        json_values::refuse(norm.key, *norm.value, "this QK-norm");
    if (const Spelling bias = spelling(object, "use_routing_bias");
        bias.value != nullptr && !is_true(*bias.value))
        json_values::refuse(bias.key, *bias.value, "M3 without a routing bias");
    if (const Spelling shared = spelling(object, "n_shared_experts");
        shared.value != nullptr && !json_values::is_number(*shared.value, 1))
        json_values::refuse(shared.key, *shared.value, "another number of shared experts than 1");
}

void note_pictures(const Value& object, const Logger& log) {
    for (const char* key : {"vision_config", "image_token_index", "video_token_index"}) {
        if (json_values::find(object, key) == nullptr) continue;
        log.info("pictures are not supported: the vision tower is left out (config.json: {})", key);
        return;
    }
}

// Returns what a key says of layers [first, end): one value, or an array with an entry for each layer, of which the others may
// differ. Nothing if the key is absent or there are no such layers.
std::optional<int64_t> of_layers(const GgufKeys& keys, std::string_view key, int64_t first, int64_t end,
                                 int64_t n_layer) {
    const std::string full = keys.full(key);
    const checkpoint::MetaValue* value = keys.metadata().find(full);
    if (value == nullptr || first == end) return {};
    if (!value->is_array()) return keys.required(key);
    if (!checkpoint::is_integer(value->element_type) || static_cast<int64_t>(value->count) != n_layer)
        fail_file(Reason::value, "metadata key {} has not one integer for each of {} layers", full, n_layer);
    for (int64_t layer = first; layer < end; ++layer)
        if (value->signed_at(layer) != value->signed_at(first))
            fail(Status::unsupported,
                 "metadata key {} differs between layers ({} and {}), which is not supported", full,
                 value->signed_at(first), value->signed_at(layer));
    return value->signed_at(first);
}

}  // namespace

Config m3_config(const Value& object, const Logger& log) {
    refuse_other_features(object);
    const auto required_of = [&](const char* key) { return json_values::required(object, key); };

    Config config;
    config.family = Family::m3;
    config.adds_one_to_norms = true;
    config.packing = layouts::packing_hints(object);
    config.n_layer = required_of("num_hidden_layers");
    config.n_dense_layer = dense_layers(object, config.n_layer);
    config.n_mtp_layer = json_values::mtp_layers(object);
    config.hidden = required_of("hidden_size");
    config.n_head = required_of("num_attention_heads");
    config.n_head_kv = required_of("num_key_value_heads");
    config.head_dim = required_of("head_dim");
    read_rotation(object, config);
    config.norm_eps = static_cast<float>(json_values::required_number(object, "rms_norm_eps"));
    config.n_expert = required_of("num_local_experts");
    config.n_expert_used = required_of("num_experts_per_tok");
    config.expert_ff = required_of("intermediate_size");
    config.shared_ff = required_of("shared_intermediate_size");
    if (config.n_dense_layer > 0) config.dense_ff = required_of("dense_intermediate_size");
    config.n_context_train = required_of("max_position_embeddings");
    if (json_values::find(object, "vocab_size") != nullptr) config.n_vocab = required_of("vocab_size");
    config.expert_weights_scale = json_values::expert_weights_scale(object);
    config.needs_router_bias = true;
    read_activation(object, config);
    read_sparse_attention(object, config);
    check_config(config);
    note_pictures(object, log);
    return config;
}

Config m3_config(const checkpoint::Metadata& metadata, const Logger& log) {
    const GgufKeys keys(metadata, "minimax-m3");
    refuse_what_no_family_has(keys);
    keys.refuse_above("expert_shared_count", 1, "more than one shared expert");

    Config config = common_config(keys, log);
    config.family = Family::m3;
    config.needs_router_bias = true;
    config.activation = k_m3_activation;
    config.n_dense_layer = keys.integer_or("leading_dense_block_count", 0);
    if (config.n_dense_layer > config.n_layer)
        fail_file(Reason::value, "metadata key {} is {}; there are {} layers",
                  keys.full("leading_dense_block_count"), config.n_dense_layer, config.n_layer);
    const auto ff_of = [&](std::string_view key, int64_t first, int64_t end) {
        return of_layers(keys, key, first, end, config.n_layer).value_or(0);
    };
    config.dense_ff = ff_of("feed_forward_length", 0, config.n_dense_layer);
    config.expert_ff = ff_of("expert_feed_forward_length", config.n_dense_layer, config.n_layer);
    config.shared_ff = keys.integer_or("expert_shared_feed_forward_length", config.expert_ff);
    if (!metadata.find(keys.full("attention.indexer.head_count")))
        fail(Status::unsupported,
             "the file was made before the index was converted; convert again (metadata key {} is missing)",
             keys.full("attention.indexer.head_count"));
    config.first_sparse_layer = config.n_dense_layer;
    config.sparse_attention = {.n_head = keys.required("attention.indexer.head_count"),
                               .dim = keys.required("attention.indexer.key_length"),
                               .block = keys.required("attention.indexer.block_size"),
                               .top = keys.required("attention.indexer.top_k"),
                               .local = keys.integer_or("attention.indexer.local_blocks", 1)};
    check_config(config);
    return config;
}

}  // namespace minim::model
