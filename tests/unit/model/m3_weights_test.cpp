// SPDX-License-Identifier: Apache-2.0
// The weights of MiniMax-M3 under all their names and in the formats of quantised publications. Other names of the same numbers must
// give the same bits.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/half.h"
#include "format/e4m3.h"
#include "support.h"
#include "support/files.h"
#include "support/safetensors_folder.h"

namespace minim::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

const std::string k_tiny_m3 = MINIM_TEST_DATA "/models/minim-tiny-m3/";
constexpr int64_t k_m3_ff = 64;
constexpr int64_t k_m3_dense_ff = 256;
constexpr int64_t k_m3_experts = 8;
constexpr const char* k_official = "language_model.";

// Returns the tensors of the stored folder.
Folder official_folder() {
    const Logger silent;
    const auto checkpoint = checkpoint::Checkpoint::open(k_tiny_m3 + "model.safetensors.index.json", silent);
    Folder folder;
    for (const checkpoint::Tensor& tensor : checkpoint.tensors()) {
        Stored& own = folder[std::string(tensor.name)];
        own.type = tensor.type_name;
        own.shape = tensor.shape;
        own.data.resize(tensor.bytes);
        checkpoint.read(tensor, 0, own.data);
    }
    return folder;
}

std::vector<float> logits_of_m3(const Folder& folder, const json& config, Lines* lines = nullptr) {
    const TemporaryFolder to;
    write(folder, to / "model.safetensors");
    const std::string text = config.dump();
    write_bytes(to / "config.json", std::as_bytes(std::span(text)));
    for (const char* file : {"tokenizer.json", "generation_config.json"})
        fs::copy_file(k_tiny_m3 + file, to / file);
    const auto model = open_model(to.path(), "reference", lines == nullptr ? nullptr : &lines->log);
    const std::vector<int32_t> ids = {3, 200, 17, 1999, 4, 4, 512, 77, 1024};
    return logits_of(*model, ids);
}

json m3_config_of(const char* file) {
    return json::parse(text_of(k_tiny_m3 + file));
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
    const size_t at = text.find(from);
    if (at != std::string::npos) text.replace(at, from.size(), to);
    return text;
}

// Returns the folder with the names that rename(name) gives; tensors without a name are left out.
Folder renamed(const Folder& folder, const std::function<std::string(std::string)>& rename) {
    Folder result;
    for (const auto& [name, tensor] : folder)
        if (const std::string own = rename(name); !own.empty()) result[own] = tensor;
    return result;
}

bool is_of_language_model(const std::string& name) {
    return name.starts_with(k_official);
}

// Moves tensors one behind the other into one tensor of the given shape.
void fuse(Folder& folder, const std::vector<std::string>& parts, const std::string& to,
          const std::vector<int64_t>& shape) {
    Stored whole = {folder.at(parts.front()).type, shape, {}};
    for (const std::string& part : parts) {
        const std::vector<std::byte>& data = folder.at(part).data;
        whole.data.insert(whole.data.end(), data.begin(), data.end());
        folder.erase(part);
    }
    folder[to] = whole;
}

// Returns the folder as transformers 5 writes it.
Folder folder_of_transformers() {
    Folder folder = renamed(official_folder(), [](std::string name) {
        if (!is_of_language_model(name)) return "model." + name;
        name = replaced(name, "language_model.lm_head.", "lm_head.");
        name = replaced(name, "language_model.model.", "model.language_model.");
        for (const char* part : {"q_proj", "k_proj", "q_norm", "k_norm"})
            name = replaced(name, std::string("self_attn.index_") + part,
                            std::string("self_attn.indexer.") + part);
        name = replaced(name, "block_sparse_moe.e_score", "mlp.gate.e_score");
        return replaced(name, "block_sparse_moe.", "mlp.");
    });
    const std::string layers = "model.language_model.layers.";
    fuse(folder, {layers + "0.mlp.gate_proj.weight", layers + "0.mlp.up_proj.weight"},
         layers + "0.mlp.gate_up_proj.weight", {2 * k_m3_dense_ff, 128});
    for (int layer = 1; layer < 4; ++layer) {
        const std::string mlp = layers + std::to_string(layer) + ".mlp.";
        fuse(folder, {mlp + "shared_experts.gate_proj.weight", mlp + "shared_experts.up_proj.weight"},
             mlp + "shared_experts.gate_up_proj.weight", {2 * k_m3_ff, 128});
        std::vector<std::string> gate_up;
        std::vector<std::string> down;
        for (int64_t e = 0; e < k_m3_experts; ++e) {
            const std::string expert = mlp + "experts." + std::to_string(e);
            gate_up.push_back(expert + ".w1.weight");
            gate_up.push_back(expert + ".w3.weight");
            down.push_back(expert + ".w2.weight");
        }
        fuse(folder, gate_up, mlp + "experts.gate_up_proj", {k_m3_experts, 2 * k_m3_ff, 128});
        fuse(folder, down, mlp + "experts.down_proj", {k_m3_experts, 128, k_m3_ff});
    }
    return folder;
}

// Replaces matrices by random ones in other formats, and by the numbers that these hold.
class Quantiser {
  public:
    explicit Quantiser(Folder folder) : quantised(folder), plain(std::move(folder)) {}

    // E4M3, and a power of two for each 32 inputs.
    void to_mxfp8(const std::string& module, const char* scale_name) {
        const std::vector<int64_t> shape = plain.at(module + ".weight").shape;
        const std::vector<std::byte> codes = random_bytes(shape[0] * shape[1], 0, 0x7D);
        const std::vector<std::byte> scales = random_bytes(shape[0] * shape[1] / 32, 117, 119);
        std::vector<float> values;
        for (size_t i = 0; i < codes.size(); ++i)
            values.push_back(std::ldexp(e4m3_to_float(std::to_integer<uint8_t>(codes[i])),
                                        std::to_integer<int>(scales[i / 32]) - 127));
        quantised[module + ".weight"] = {"F8_E4M3", shape, codes};
        quantised[module + scale_name] = {"U8", {shape[0], shape[1] / 32}, scales};
        plain[module + ".weight"] = stored(shape, values.data());
    }

    // E2M1, E4M3 for each 16 inputs, and a factor.
    void to_nvfp4(const std::string& module) {
        constexpr float k_e2m1[] = {0.0F, 0.5F, 1.0F, 1.5F, 2.0F, 3.0F, 4.0F, 6.0F};
        const float factor = 1.0F / 512.0F;
        const std::vector<int64_t> shape = plain.at(module + ".weight").shape;
        const std::vector<std::byte> codes = random_bytes(shape[0] * shape[1] / 2, 0, 255);
        const std::vector<std::byte> scales = random_bytes(shape[0] * shape[1] / 16, 0x38, 0x48);
        std::vector<float> values;
        for (size_t i = 0; i < 2 * codes.size(); ++i) {
            const int code = std::to_integer<int>(codes[i / 2]) >> (i % 2 * 4) & 15;
            const float magnitude =
                k_e2m1[code % 8] * e4m3_to_float(std::to_integer<uint8_t>(scales[i / 16])) * factor;
            values.push_back(code < 8 ? magnitude : -magnitude);
        }
        quantised[module + ".weight"] = {"U8", {shape[0], shape[1] / 2}, codes};
        quantised[module + ".weight_scale"] = {"F8_E4M3", {shape[0], shape[1] / 16}, scales};
        quantised[module + ".weight_scale_2"] = stored({1}, &factor);
        plain[module + ".weight"] = stored(shape, values.data());
    }

    Folder quantised, plain;

  private:
    // Of codes, every other one has its sign set.
    std::vector<std::byte> random_bytes(int64_t count, int smallest, int largest) {
        std::uniform_int_distribution<int> byte(smallest, largest);
        std::vector<std::byte> bytes;
        for (int64_t i = 0; i < count; ++i) {
            const bool is_negative = smallest == 0 && largest < 128 && random_() % 2 == 0;
            bytes.push_back(static_cast<std::byte>(byte(random_) | (is_negative ? 0x80 : 0)));
        }
        return bytes;
    }

    std::mt19937 random_{5};
};

// Returns the modules of matrices that publications quantise, without those of chosen experts, and those of chosen experts.
std::pair<std::vector<std::string>, std::vector<std::string>> modules_of(const Folder& folder) {
    std::pair<std::vector<std::string>, std::vector<std::string>> modules;
    for (const auto& [name, tensor] : folder) {
        const bool is_matrix =
            tensor.shape.size() == 2 && tensor.type == "BF16" && is_of_language_model(name);
        if (!is_matrix || name.find("embed") != std::string::npos ||
            name.find("lm_head") != std::string::npos)
            continue;
        const std::string module = name.substr(0, name.size() - std::string(".weight").size());
        (name.find(".experts.") == std::string::npos ? modules.first : modules.second).push_back(module);
    }
    return modules;
}

double rms_difference(const std::vector<float>& a, const std::vector<float>& b) {
    return relative_rms(a, std::vector<double>(b.begin(), b.end()));
}

}  // namespace

TEST_CASE("all names of M3's tensors give the same bits") {
    const json config = m3_config_of("config.json");
    Lines lines;
    const std::vector<float> expected = logits_of_m3(official_folder(), config, &lines);
    CHECK(lines.holding("tensors of the vision tower left out") == 1);
    const Folder text_only = renamed(official_folder(), [](const std::string& name) {
        return is_of_language_model(name) ? name.substr(std::string(k_official).size()) : std::string();
    });
    Lines without;
    CHECK(same_bits(logits_of_m3(text_only, config, &without), expected));
    CHECK(without.holding("vision tower left out") == 0);
    CHECK(same_bits(logits_of_m3(folder_of_transformers(), config), expected));
    CHECK(same_bits(logits_of_m3(folder_of_transformers(), m3_config_of("config.flat.json")), expected));
}

TEST_CASE("tensors of multi-token prediction are left out of M3, others are refused") {
    const json config = m3_config_of("config.json");
    Folder folder = official_folder();
    const std::vector<float> expected = logits_of_m3(folder, config);
    const float number = 1.0F;
    folder["language_model.model.mtp.layers.0.enorm.weight"] = stored({1}, &number);
    folder["mtp.layers.0.eh_proj.weight"] = stored({1}, &number);
    Lines lines;
    CHECK(same_bits(logits_of_m3(folder, config, &lines), expected));
    CHECK(lines.holding("2 tensors of multi-token-prediction layers skipped") == 1);
    for (const char* name : {"language_model.model.layers.1.self_attn.index_v_proj.weight",
                             "language_model.model.layers.1.self_attn.q_proj.bias", "audio_tower.x"}) {
        Folder odd = folder;
        odd[name] = stored({1}, &number);
        expect_error(Status::unsupported,
                     std::string(name) + "\" (F32 [1]) has no place in a MiniMax-M3 model",
                     [&] { logits_of_m3(odd, config); });
    }
    folder.erase("language_model.model.layers.2.self_attn.index_k_norm.weight");
    expect_error(Status::format,
                 "tensor language_model.model.layers.2.self_attn.index_k_norm.weight is missing",
                 [&] { logits_of_m3(folder, config); });
}

TEST_CASE("names of M3 with different prefixes are refused") {
    Folder folder = official_folder();
    folder["model.language_model.norm.weight"] = folder.at("language_model.model.norm.weight");
    expect_error(Status::format, "have different prefixes",
                 [&] { logits_of_m3(folder, m3_config_of("config.json")); });
}

TEST_CASE("M3 in MXFP8 has the logits of its numbers") {
    json config = m3_config_of("config.json");
    config["quantization_config"] = {{"quant_method", "mxfp8"},
                                     {"weight_block_size", {1, 32}},
                                     {"activation_scheme", "dynamic"},
                                     {"ignored_layers", {"lm_head"}}};
    Quantiser quantiser(official_folder());
    const auto [dense, experts] = modules_of(quantiser.plain);
    REQUIRE(dense.size() == 16 + 6 + 3 + 9);  // attention, index, the dense layer, shared experts
    REQUIRE(experts.size() == 3 * 3 * 8);
    for (const std::string& module : dense) quantiser.to_mxfp8(module, ".weight_scale_inv");
    for (const std::string& module : experts) quantiser.to_mxfp8(module, ".weight_scale_inv");
    const auto expected = logits_of_m3(quantiser.plain, m3_config_of("config.json"));
    CHECK(rms_difference(logits_of_m3(quantiser.quantised, config), expected) < 1e-6);
}

TEST_CASE("M3 in NVFP4 and MXFP8 by module has the logits of its numbers") {
    json config = m3_config_of("config.json");
    Quantiser quantiser(official_folder());
    const auto [dense, experts] = modules_of(quantiser.plain);
    json layers = json::object();
    for (const std::string& module : dense) {
        quantiser.to_mxfp8(module, module.ends_with("o_proj") ? ".weight_scale_inv" : ".weight_scale");
        layers[module] = {{"quant_algo", "MXFP8"}, {"group_size", 32}};
    }
    for (const std::string& module : experts) {
        quantiser.to_nvfp4(module);
        layers[module] = {{"quant_algo", "NVFP4"}, {"group_size", 16}};
    }
    config["quantization_config"] = {
        {"quant_method", "modelopt"}, {"quant_algo", "MIXED_PRECISION"}, {"quantized_layers", layers}};
    const auto expected = logits_of_m3(quantiser.plain, m3_config_of("config.json"));
    CHECK(rms_difference(logits_of_m3(quantiser.quantised, config), expected) < 1e-6);
    // Names of modules count with their prefix: a wrong declaration is found.
    config["quantization_config"]["quantized_layers"][dense.front()]["quant_algo"] = "NVFP4";
    expect_error(Status::format, dense.front(), [&] { logits_of_m3(quantiser.quantised, config); });
}

}  // namespace minim::test
