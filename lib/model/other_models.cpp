// SPDX-License-Identifier: Apache-2.0
#include "model/other_models.h"

#include <algorithm>
#include <array>

namespace minim::model {
namespace {

struct Row {
    std::string_view name;
    std::string_view what;
};

// The names are in small letters, without separators of words. The first row whose name is the beginning of a text
// describes it.
constexpr Row k_models[] = {
    {"minimaxm3", "MiniMax-M3 or M3.1, which has block-sparse attention"},
    {"minimaxh3", "MiniMax-H3, a model of another kind"},
    {"minimaxm1", "MiniMax-M1, which has linear attention"},
    {"minimaxtext01", "MiniMax-Text-01, which has linear attention"},
    {"minimaxvl01", "MiniMax-VL-01, which reads pictures and has linear attention"},
    {"minimax01", "MiniMax-Text-01 or M1, which has linear attention"},
    {"minimaxforcausallm", "MiniMax-Text-01 or M1, which has linear attention"},
    {"minimaxmodel", "MiniMax-Text-01 or M1, which has linear attention"},
};

constexpr std::string_view k_mlx = "MLX, the framework for Apple's processors";
constexpr std::string_view k_exl3 = "EXL3, the trellis-coded quantisation of ExLlamaV3";
constexpr std::string_view k_hqq = "HQQ, half-quadratic quantisation";
constexpr std::string_view k_bitsandbytes = "bitsandbytes, which quantises while it loads";

constexpr Row k_methods[] = {
    {"mlx", k_mlx},
    {"exl3", k_exl3},
    {"exl2", "EXL2, the quantisation of ExLlamaV2"},
    {"hqq", k_hqq},
    {"bitsandbytes", k_bitsandbytes},
    {"torchao", "torchao, PyTorch's own quantisation"},
    {"quanto", "Quanto, the quantisation of Optimum"},
    {"aqlm", "AQLM, additive quantisation"},
    {"vptq", "VPTQ, vector quantisation"},
    {"spqr", "SpQR, sparse quantisation"},
    {"higgs", "HIGGS, quantisation on grids behind a Hadamard transform"},
    {"eetq", "EETQ, INT8 quantisation while loading"},
    {"fbgemm_fp8", "FBGEMM's FP8"},
    {"bitnet", "BitNet, ternary weights"},
};

constexpr Row k_suffixes[] = {
    {".trellis", k_exl3},
    {".suh", k_exl3},
    {".svh", k_exl3},
    {".W_q", k_hqq},
    {".absmax", k_bitsandbytes},
    {".quant_map", k_bitsandbytes},
    {".SCB", k_bitsandbytes},
    {".biases", k_mlx},
};

constexpr char small(char c) noexcept {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

}  // namespace

std::string_view other_model(std::string_view name) noexcept {
    std::array<char, 32> plain{};  // longer than any row
    size_t length = 0;
    for (const char c : name) {
        if (c == '-' || c == '_' || c == '.' || c == ' ') continue;
        if (length == plain.size()) break;
        plain[length++] = small(c);
    }
    const std::string_view text(plain.data(), length);
    for (const Row& row : k_models) {
        if (text.starts_with(row.name)) return row.what;
    }
    return text == "minimax" ? std::string_view("MiniMax-Text-01 or M1, which has linear attention")
                             : std::string_view();
}

std::string_view other_quantisation(std::string_view method) noexcept {
    for (const Row& row : k_methods) {
        if (std::ranges::equal(method, row.name, {}, small)) return row.what;
    }
    return {};
}

std::string_view quantisation_of_tensor(std::string_view name) noexcept {
    if (name.find(".switch_mlp.") != std::string_view::npos) return k_mlx;
    if (name.find(".quant_state.bitsandbytes") != std::string_view::npos) return k_bitsandbytes;
    for (const Row& row : k_suffixes) {
        if (name.ends_with(row.name)) return row.what;
    }
    return {};
}

}  // namespace minim::model
