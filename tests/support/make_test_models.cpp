// SPDX-License-Identifier: Apache-2.0
// Makes the models that the tests need and the repository does not have: minim-tiny in BF16, as a GGUF file and as a folder,
// and as folders in FP8, NVFP4 and AWQ. All weights come from the bundled Q8_0 file and from the bits that Q8_0 lost
// (minim-tiny-bf16.lost). And random.gguf, a model of two layers with random weights and 271 tokens. tests/data/models/README.md describes the files, and SHA256SUMS there has the sums of the results.
//
//   make_test_models PROJECT_FOLDER OUTPUT_FOLDER
#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/half.h"
#include "checkpoint/checkpoint.h"
#include "support/files.h"
#include "support/gguf_writer.h"
#include "support/quantise.h"
#include "support/safetensors_writer.h"
#include "support/tiny_model.h"

namespace minim::test {
namespace {

namespace fs = std::filesystem;
using checkpoint::Checkpoint;
using checkpoint::MetaType;

constexpr size_t k_n_layer = 3;
constexpr size_t k_n_expert = 8;

// A tensor of the BF16 model, under its GGUF name: its values are stored as F32, or all are BF16 numbers.
struct Weights {
    bool is_bf16 = false;
    std::vector<uint64_t> shape;  // outermost first
    std::vector<float> values;
};
using Model = std::map<std::string, Weights>;

std::vector<uint16_t> bf16_of(const std::vector<float>& values) {
    std::vector<uint16_t> bits;
    bits.reserve(values.size());
    for (const float value : values) bits.push_back(float_to_bf16(value));
    return bits;
}

// A stream of numbers of some bits each, the low ones first.
class BitReader {
  public:
    explicit BitReader(std::string bytes) : bytes_(std::move(bytes)) {}

    uint32_t next(uint32_t n_bits) {
        uint32_t value = 0;
        for (uint32_t i = 0; i < n_bits; ++i, ++at_)
            value |= (static_cast<uint32_t>(bytes_.at(at_ / 8)) >> at_ % 8 & 1U) << i;
        return value;
    }
    bool at_end() const { return (at_ + 7) / 8 == bytes_.size(); }

  private:
    std::string bytes_;
    size_t at_ = 0;
};

// Returns the BF16 weight that Q8_0 stores as `code` times `scale`: that value cut off to BF16, then moved by the next number of
// the stream, in BF16 numbers away from 0 or towards it. The smaller the code, the more BF16 numbers share it, so the more bits
// the number has. For code 0 the stream has all bits of the weight.
float restore(int code, float scale, BitReader& lost) {
    if (code == 0) return bf16_to_float(static_cast<uint16_t>(lost.next(16)));
    const auto magnitude = static_cast<uint32_t>(std::abs(code));
    const uint32_t at_most = 128 / magnitude;  // at least 1
    const auto n_bits = static_cast<uint32_t>(std::bit_width(at_most)) + 1;
    const uint32_t half = 2 * std::bit_floor(at_most);  // 2^(n_bits - 1)
    const uint32_t cut = float_to_bits(static_cast<float>(code) * scale) >> 16;
    return bf16_to_float(static_cast<uint16_t>(cut + lost.next(n_bits) + 1 - half));
}

Model restore_model(const Checkpoint& q8_0, const fs::path& lost_file) {
    constexpr size_t k_block = 32;
    BitReader lost(text_of(lost_file));
    Model model;
    for (const checkpoint::Tensor& tensor : q8_0.tensors()) {
        Weights& weights = model[tensor.name];
        weights.shape.assign(tensor.shape.begin(), tensor.shape.end());
        std::vector<std::byte> bytes(tensor.bytes);
        q8_0.read(tensor, 0, bytes);
        if (tensor.format == Format::f32) {
            weights.values.resize(bytes.size() / sizeof(float));
            std::memcpy(weights.values.data(), bytes.data(), bytes.size());
            continue;
        }
        weights.is_bf16 = true;
        for (size_t at = 0; at < bytes.size(); at += sizeof(uint16_t) + k_block) {
            uint16_t half = 0;
            std::memcpy(&half, bytes.data() + at, sizeof(half));
            for (size_t i = 0; i < k_block; ++i) {
                const auto code = static_cast<int8_t>(bytes[at + sizeof(half) + i]);
                weights.values.push_back(restore(code, f16_to_float(half), lost));
            }
        }
    }
    if (!lost.at_end()) throw std::runtime_error(lost_file.string() + ": too long");
    return model;
}

void copy_entry(GgufWriter& writer, const checkpoint::Metadata::Entry& entry) {
    const checkpoint::MetaValue& value = entry.value;
    if (value.type == MetaType::array && value.element_type == MetaType::string) {
        std::vector<std::string> texts;
        for (uint64_t i = 0; i < value.count; ++i) texts.emplace_back(value.string_at(i));
        writer.add_array(entry.key, texts);
    } else if (value.type == MetaType::array && value.element_type == MetaType::i32) {
        std::vector<int32_t> numbers;
        for (uint64_t i = 0; i < value.count; ++i)
            numbers.push_back(static_cast<int32_t>(value.signed_at(i)));
        writer.add_array(entry.key, numbers);
    } else if (value.type == MetaType::string) {
        writer.add(entry.key, value.string_at(0));
    } else if (value.type == MetaType::u32) {
        writer.add(entry.key, static_cast<uint32_t>(value.unsigned_at(0)));
    } else if (value.type == MetaType::i32) {
        writer.add(entry.key, static_cast<int32_t>(value.signed_at(0)));
    } else if (value.type == MetaType::f32) {
        writer.add(entry.key, static_cast<float>(value.number_at(0)));
    } else if (value.type == MetaType::boolean) {
        writer.add(entry.key, value.unsigned_at(0) != 0);
    } else {
        throw std::runtime_error("metadata of an unexpected type: " + entry.key);
    }
}

// Entries and tensors in the order of llama.cpp's converter, which its quantiser changed.
void write_gguf(const Checkpoint& q8_0, const Model& model, const fs::path& path) {
    constexpr uint32_t k_mostly_bf16 = 32;
    GgufWriter writer;
    for (const auto& entry : q8_0.metadata().entries()) {
        if (entry.key == "general.file_type" || entry.key == "general.quantization_version") continue;
        if (entry.key == "minimax-m2.expert_feed_forward_length")
            writer.add("general.file_type", k_mostly_bf16);
        copy_entry(writer, entry);
        if (entry.key == "minimax-m2.rope.dimension_count")
            copy_entry(writer, *q8_0.metadata().find_entry("general.quantization_version"));
    }
    std::vector<std::string> names = {"output.weight", "token_embd.weight"};
    for (size_t layer = 0; layer < k_n_layer; ++layer) {
        for (const char* name :
             {"exp_probs_b.bias", "ffn_gate_exps.weight", "ffn_down_exps.weight", "ffn_up_exps.weight",
              "ffn_gate_inp.weight", "attn_norm.weight", "ffn_norm.weight", "attn_k_norm.weight",
              "attn_k.weight", "attn_output.weight", "attn_q_norm.weight", "attn_q.weight", "attn_v.weight"})
            names.push_back(fmt::format("blk.{}.{}", layer, name));
    }
    names.emplace_back("output_norm.weight");
    for (const std::string& name : names) {
        const Weights& weights = model.at(name);
        const std::vector<uint64_t> dims(weights.shape.rbegin(), weights.shape.rend());
        if (!weights.is_bf16) {
            writer.add_f32(name, dims, weights.values);
            continue;
        }
        const std::vector<uint16_t> bits = bf16_of(weights.values);
        const auto bytes = std::as_bytes(std::span(bits));
        writer.add_tensor({name, 30, dims, {bytes.begin(), bytes.end()}});
    }
    writer.write(path.string());
}

enum class Kind {
    router,     // F32 in every folder
    plain,      // norms, embedding, head
    attention,  // matrices
    expert,
};

// A tensor of a folder. `module` is its name without ".weight".
struct FolderTensor {
    std::string module;
    Kind kind = Kind::plain;
    std::vector<uint64_t> shape;
    std::vector<float> values;

    std::string name() const {
        return module.ends_with("e_score_correction_bias") ? module : module + ".weight";
    }
    Matrix matrix() const { return {shape.at(0), shape.at(1), values}; }
};

std::vector<FolderTensor> folder_tensors(const Model& model) {
    std::vector<FolderTensor> tensors;
    const auto add = [&](const std::string& gguf_name, std::string module, Kind kind) {
        const Weights& weights = model.at(gguf_name);
        tensors.push_back({std::move(module), kind, weights.shape, weights.values});
    };
    add("token_embd.weight", "model.embed_tokens", Kind::plain);
    add("output_norm.weight", "model.norm", Kind::plain);
    add("output.weight", "lm_head", Kind::plain);
    for (size_t layer = 0; layer < k_n_layer; ++layer) {
        const std::string from = fmt::format("blk.{}.", layer);
        const std::string to = fmt::format("model.layers.{}.", layer);
        add(from + "attn_norm.weight", to + "input_layernorm", Kind::plain);
        add(from + "ffn_norm.weight", to + "post_attention_layernorm", Kind::plain);
        add(from + "attn_q_norm.weight", to + "self_attn.q_norm", Kind::plain);
        add(from + "attn_k_norm.weight", to + "self_attn.k_norm", Kind::plain);
        add(from + "attn_q.weight", to + "self_attn.q_proj", Kind::attention);
        add(from + "attn_k.weight", to + "self_attn.k_proj", Kind::attention);
        add(from + "attn_v.weight", to + "self_attn.v_proj", Kind::attention);
        add(from + "attn_output.weight", to + "self_attn.o_proj", Kind::attention);
        add(from + "ffn_gate_inp.weight", to + "block_sparse_moe.gate", Kind::router);
        add(from + "exp_probs_b.bias", to + "block_sparse_moe.e_score_correction_bias", Kind::router);
        for (const auto& [stacked, single] :
             {std::pair("ffn_gate_exps", "w1"), std::pair("ffn_down_exps", "w2"),
              std::pair("ffn_up_exps", "w3")}) {
            const Weights& all = model.at(from + stacked + ".weight");
            const size_t size = all.values.size() / k_n_expert;
            for (size_t expert = 0; expert < k_n_expert; ++expert) {
                const auto begin = all.values.begin() + static_cast<std::ptrdiff_t>(expert * size);
                tensors.push_back({fmt::format("{}block_sparse_moe.experts.{}.{}", to, expert, single),
                                   Kind::expert,
                                   {all.shape.begin() + 1, all.shape.end()},
                                   {begin, begin + static_cast<std::ptrdiff_t>(size)}});
            }
        }
    }
    return tensors;
}

SafetensorsTensor stored(const FolderTensor& tensor) {
    if (tensor.kind == Kind::router) return tensor_of(tensor.name(), "F32", tensor.shape, tensor.values);
    return tensor_of(tensor.name(), "BF16", tensor.shape, bf16_of(tensor.values));
}

void append(std::vector<SafetensorsTensor>& to, std::vector<SafetensorsTensor> more) {
    std::ranges::move(more, std::back_inserter(to));
}

// Writes the parts that the folder's index names.
void write_bf16(const std::vector<FolderTensor>& tensors, const fs::path& folder) {
    const auto index = nlohmann::json::parse(text_of(folder / "model.safetensors.index.json"));
    std::map<std::string, std::vector<SafetensorsTensor>> parts;
    for (const FolderTensor& tensor : tensors)
        parts[index.at("weight_map").at(tensor.name())].push_back(stored(tensor));
    for (auto& [name, part] : parts) write_safetensors((folder / name).string(), std::move(part));
}

void write_fp8(const std::vector<FolderTensor>& tensors, const fs::path& folder) {
    std::vector<SafetensorsTensor> out;
    for (const FolderTensor& tensor : tensors) {
        if (tensor.kind == Kind::attention || tensor.kind == Kind::expert) {
            append(out, quantise_fp8(tensor.module, tensor.matrix()));
        } else {
            out.push_back(stored(tensor));
        }
    }
    write_safetensors((folder / "model.safetensors").string(), std::move(out));
}

// Reads `input_scales` from a file of their own: they were measured with activations and cannot be computed from the weights.
void write_nvfp4(const std::vector<FolderTensor>& tensors, const fs::path& input_scales,
                 const fs::path& folder) {
    const auto scales = nlohmann::json::parse(text_of(input_scales));
    // w1 and w3 of an expert are one product and share a scale.
    const auto sharing = [](std::string module) {
        if (module.ends_with(".w3")) module.back() = '1';
        return module;
    };
    std::map<std::string, float> largest;
    for (const FolderTensor& tensor : tensors) {
        float& value = largest[sharing(tensor.module)];
        value = std::max(value, largest_magnitude(tensor.values));
    }
    std::vector<SafetensorsTensor> out;
    for (const FolderTensor& tensor : tensors) {
        if (tensor.kind != Kind::expert) {
            out.push_back(stored(tensor));
            continue;
        }
        const std::string module = sharing(tensor.module);
        const double scale = static_cast<double>(largest.at(module)) / (6.0 * 448.0);
        append(out, quantise_nvfp4(tensor.module, tensor.matrix(), scale, scales.at(module).get<float>()));
    }
    write_safetensors((folder / "model.safetensors").string(), std::move(out));
}

void write_awq(const std::vector<FolderTensor>& tensors, const fs::path& folder) {
    std::vector<SafetensorsTensor> out;
    for (const FolderTensor& tensor : tensors) {
        if (tensor.kind == Kind::attention || tensor.kind == Kind::expert) {
            append(out, quantise_awq(tensor.module, tensor.matrix()));
        } else if (tensor.kind == Kind::router) {
            out.push_back(stored(tensor));
        } else {
            std::vector<uint16_t> halves;
            for (const float value : tensor.values) halves.push_back(float_to_f16(value));
            out.push_back(tensor_of(tensor.name(), "F16", tensor.shape, halves));
        }
    }
    write_safetensors((folder / "model.safetensors").string(), std::move(out));
}

// Copies the files beside the weights: those that all folders share, and those of this folder.
void copy_texts(const fs::path& data, const std::string& name, const fs::path& folder) {
    constexpr auto k_replace = fs::copy_options::overwrite_existing;
    fs::create_directories(folder);
    for (const char* file : {"tokenizer.json", "tokenizer_config.json", "generation_config.json"})
        fs::copy_file(data / "tokenizer/minim-tiny" / file, folder / file, k_replace);
    fs::copy_file(data / "chat/minim_tiny.jinja", folder / "chat_template.jinja", k_replace);
    for (const auto& entry : fs::directory_iterator(data / "models" / name))
        fs::copy_file(entry.path(), folder / entry.path().filename(), k_replace);
}

void make_models(const fs::path& project, const fs::path& output) {
    const fs::path data = project / "tests/data";
    const Logger silent;
    const auto q8_0 = Checkpoint::open((project / "examples/models/minim-tiny-q8_0.gguf").string(), silent);
    const Model model = restore_model(q8_0, data / "models/minim-tiny-bf16.lost");
    const std::vector<FolderTensor> tensors = folder_tensors(model);
    const auto folder = [&](const std::string& name) {
        copy_texts(data, name, output / name);
        return output / name;
    };
    write_bf16(tensors, folder("minim-tiny"));
    write_gguf(q8_0, model, output / "minim-tiny-bf16.gguf");
    write_fp8(tensors, folder("minim-tiny-fp8"));
    write_nvfp4(tensors, data / "models/nvfp4_input_scales.json", folder("minim-tiny-nvfp4"));
    write_awq(tensors, folder("minim-tiny-awq"));
    TinyModel({.n_layer = 2}).write(output / "random.gguf");
}

}  // namespace
}  // namespace minim::test

int main(int argc, char** argv) try {
    if (argc != 3) throw std::runtime_error("usage: make_test_models PROJECT_FOLDER OUTPUT_FOLDER");
    minim::test::make_models(argv[1], argv[2]);
    return 0;
} catch (const std::exception& error) {
    std::fprintf(stderr, "make_test_models: %s\n", error.what());
    return 1;
}
