// SPDX-License-Identifier: Apache-2.0
// Little MiniMax-M2 models with random weights, as numbers and as GGUF files. No quantity is degenerate: every norm has
// gains of its own, the correction bias changes the chosen experts, attention is not uniform, the query projection is
// small enough for the epsilon of its norm to show, and heads times head size differs from the hidden size.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "format/encode.h"
#include "format/format.h"
#include "support/gguf_writer.h"

namespace minim::test {

struct TinyShape {
    int64_t n_layer = 4;
    int64_t hidden = 96;
    int64_t n_head = 6;
    int64_t n_head_kv = 2;
    int64_t head_dim = 32;
    int64_t rotary_dim = 16;
    int64_t n_expert = 7;
    int64_t n_expert_used = 3;
    int64_t expert_ff = 64;
    int64_t n_vocab = 271;
    int64_t n_context_train = 128;
    double rope_theta = 5e6;
    float norm_eps = 1e-6F;
};

// The tail of the vocabulary: added tokens, then rows without a token.
struct TinyAdded {
    const char* text;
    int32_t type;  // of tokenizer.ggml.token_type
};
inline constexpr std::array<TinyAdded, 7> k_tiny_added = {
    {{"]~b]", 3}, {"[e~[", 3}, {"<think>", 4}, {"</think>", 4}, {"[PAD0]", 5}, {"[PAD1]", 5}, {"[PAD2]", 5}}};

struct TinyTensor {
    std::vector<int64_t> shape;  // outermost first
    std::vector<float> values;   // exactly what `data` decodes to
    Format format = Format::f32;
    std::vector<std::byte> data;
};

class TinyModel {
  public:
    TinyShape shape;
    std::map<std::string, TinyTensor> tensors;  // by GGUF name
    std::string chat_template;

    explicit TinyModel(const TinyShape& wanted = {}, uint64_t seed = 1) : shape(wanted), random_(seed) {
        const int64_t q = shape.n_head * shape.head_dim;
        const int64_t kv = shape.n_head_kv * shape.head_dim;
        matrix("token_embd.weight", {shape.n_vocab, shape.hidden}, 0.5);
        for (int64_t layer = 0; layer < shape.n_layer; ++layer) {
            const std::string blk = "blk." + std::to_string(layer) + ".";
            gains(blk + "attn_norm.weight", shape.hidden);
            matrix(blk + "attn_q.weight", {q, shape.hidden}, 0.003 / root(shape.hidden));
            matrix(blk + "attn_k.weight", {kv, shape.hidden}, 1.0 / root(shape.hidden));
            matrix(blk + "attn_v.weight", {kv, shape.hidden}, 1.0 / root(shape.hidden));
            matrix(blk + "attn_output.weight", {shape.hidden, q}, 1.0 / root(q));
            gains(blk + "attn_q_norm.weight", q);
            gains(blk + "attn_k_norm.weight", kv);
            gains(blk + "ffn_norm.weight", shape.hidden);
            add_experts(layer, shape.n_expert);
        }
        gains("output_norm.weight", shape.hidden);
        matrix("output.weight", {shape.n_vocab, shape.hidden}, 1.0 / root(shape.hidden));
    }

    // Replaces a layer's router and experts by others, `n_expert` in number.
    void add_experts(int64_t layer, int64_t n_expert) {
        const std::string blk = "blk." + std::to_string(layer) + ".";
        matrix(blk + "ffn_gate_inp.weight", {n_expert, shape.hidden}, 1.5 / root(shape.hidden));
        matrix(blk + "exp_probs_b.bias", {n_expert}, 0.3);
        matrix(blk + "ffn_gate_exps.weight", {n_expert, shape.expert_ff, shape.hidden},
               1.5 / root(shape.hidden));
        matrix(blk + "ffn_up_exps.weight", {n_expert, shape.expert_ff, shape.hidden},
               1.5 / root(shape.hidden));
        matrix(blk + "ffn_down_exps.weight", {n_expert, shape.hidden, shape.expert_ff},
               2.0 / root(shape.expert_ff));
    }

    // Stores a tensor in another format; its values become those that the stored bytes decode to.
    void store_as(const std::string& name, Format format) {
        TinyTensor& tensor = tensors.at(name);
        const EncodeRow encode = row_encoder(format);
        if (encode == nullptr) throw std::runtime_error("no encoder for " + std::string(traits(format).name));
        const int64_t cols = tensor.shape.back();
        uint64_t stride = 0;
        if (!row_bytes(format, static_cast<uint64_t>(cols), stride))
            throw std::runtime_error("no whole blocks: " + name);
        const int64_t rows = static_cast<int64_t>(tensor.values.size()) / cols;
        tensor.format = format;
        tensor.data.resize(static_cast<size_t>(rows) * stride);
        for (int64_t r = 0; r < rows; ++r) {
            float* values = tensor.values.data() + r * cols;
            std::byte* row = tensor.data.data() + r * static_cast<int64_t>(stride);
            encode(values, cols, row);
            traits(format).decode_row(row, cols, values);
        }
    }

    // Adds a tensor of given values.
    void put(const std::string& name, std::vector<int64_t> dims, std::vector<float> values) {
        tensors[name] = {std::move(dims), std::move(values), Format::f32, {}};
        store_as(name, Format::f32);
    }

    const std::vector<float>& values(const std::string& name) const { return tensors.at(name).values; }

    // Returns a writer with the model's complete metadata; a test adds, drops or changes keys of it.
    GgufWriter writer() const {
        GgufWriter gguf;
        add_hyper_parameters(gguf);
        add_vocabulary(gguf);
        if (!chat_template.empty()) gguf.add("tokenizer.chat_template", std::string_view(chat_template));
        for (const auto& [name, tensor] : tensors) {
            const std::vector<uint64_t> dims(tensor.shape.rbegin(), tensor.shape.rend());
            gguf.add_tensor({name, traits(tensor.format).gguf_type, dims, tensor.data});
        }
        return gguf;
    }

    void write(const std::string& path) const { writer().write(path); }

    void add_hyper_parameters(GgufWriter& gguf) const {
        const auto u32 = [&](std::string_view key, int64_t value) {
            gguf.add("minimax-m2." + std::string(key), static_cast<uint32_t>(value));
        };
        gguf.add("general.architecture", "minimax-m2");
        gguf.add("general.name", "tiny");
        u32("block_count", shape.n_layer);
        u32("context_length", shape.n_context_train);
        u32("embedding_length", shape.hidden);
        u32("attention.head_count", shape.n_head);
        u32("attention.head_count_kv", shape.n_head_kv);
        u32("attention.key_length", shape.head_dim);
        u32("attention.value_length", shape.head_dim);
        u32("rope.dimension_count", shape.rotary_dim);
        u32("expert_count", shape.n_expert);
        u32("expert_used_count", shape.n_expert_used);
        u32("expert_feed_forward_length", shape.expert_ff);
        u32("expert_gating_func", 2);
        gguf.add("minimax-m2.rope.freq_base", static_cast<float>(shape.rope_theta));
        gguf.add("minimax-m2.attention.layer_norm_rms_epsilon", shape.norm_eps);
    }

    // Adds 256 byte tokens, then one token for each merge, then the added tokens; n_vocab must be large enough for them.
    void add_vocabulary(GgufWriter& gguf) const {
        std::vector<std::string> tokens;
        for (int byte = 0; byte < 256; ++byte) tokens.push_back(stand_in(byte));
        std::vector<std::string> merges;
        const auto n_ordinary = static_cast<size_t>(shape.n_vocab) - k_tiny_added.size();
        for (size_t letter = 0; tokens.size() < n_ordinary; ++letter) {
            const std::string first(1, static_cast<char>('a' + letter / 26));
            const std::string second(1, static_cast<char>('a' + letter % 26));
            merges.push_back(first + " " + second);
            tokens.push_back(first + second);
        }
        std::vector<int32_t> types(tokens.size(), 1);
        for (const TinyAdded& added : k_tiny_added) {
            tokens.emplace_back(added.text);
            types.push_back(added.type);
        }
        gguf.add("tokenizer.ggml.model", "gpt2");
        gguf.add("tokenizer.ggml.pre", "minimax-m2");
        gguf.add_array("tokenizer.ggml.tokens", tokens);
        gguf.add_array("tokenizer.ggml.token_type", types);
        gguf.add_array("tokenizer.ggml.merges", merges);
        gguf.add("tokenizer.ggml.eos_token_id", static_cast<uint32_t>(n_ordinary + 1));
    }

    std::vector<int32_t> random_ids(size_t count) {
        std::vector<int32_t> ids(count);
        for (int32_t& id : ids) id = static_cast<int32_t>(random_() % static_cast<uint64_t>(shape.n_vocab));
        return ids;
    }

  private:
    static double root(int64_t n) { return std::sqrt(static_cast<double>(n)); }

    double uniform() { return static_cast<double>(random_() >> 11U) * 0x1p-53; }  // [0, 1)

    // Returns a number of roughly normal distribution, the same on every system.
    double normal() {
        double sum = -6.0;
        for (int i = 0; i < 12; ++i) sum += uniform();
        return sum;
    }

    void matrix(const std::string& name, std::vector<int64_t> dims, double deviation) {
        size_t count = 1;
        for (const int64_t dim : dims) count *= static_cast<size_t>(dim);
        std::vector<float> values(count);
        for (float& value : values) value = static_cast<float>(deviation * normal());
        put(name, std::move(dims), std::move(values));
    }

    void gains(const std::string& name, int64_t size) {
        std::vector<float> values(static_cast<size_t>(size));
        for (float& value : values) value = static_cast<float>(0.5 + uniform());
        put(name, {size}, std::move(values));
    }

    // Returns the character that a byte-level vocabulary writes for a byte, as UTF-8.
    static std::string stand_in(int byte) {
        const auto is_plain = [](int b) {
            return (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
        };
        int code = byte;
        if (!is_plain(byte)) {
            code = 0x100;
            for (int b = 0; b < byte; ++b) code += is_plain(b) ? 0 : 1;
        }
        if (code < 0x80) return {static_cast<char>(code)};
        return {static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 0x3F))};
    }

    std::mt19937_64 random_;
};

}  // namespace minim::test
