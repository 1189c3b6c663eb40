// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "layouts/declared.h"

namespace minim::layouts {
namespace {

struct Refused {
    std::string_view name;
    std::string_view what;
};

constexpr std::string_view k_mlx = "MLX, the framework for Apple's processors";
constexpr std::string_view k_exl3 = "EXL3, the trellis-coded quantisation of ExLlamaV3";
constexpr std::string_view k_hqq = "HQQ, half-quadratic quantisation";
constexpr std::string_view k_bitsandbytes = "bitsandbytes, which quantises while it loads";

constexpr Refused k_methods[] = {
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

constexpr Refused k_suffixes[] = {
    {".trellis", k_exl3},
    {".suh", k_exl3},
    {".svh", k_exl3},
    {".W_q", k_hqq},
    {".absmax", k_bitsandbytes},
    {".quant_map", k_bitsandbytes},
    {".SCB", k_bitsandbytes},
    {".biases", k_mlx},
};

constexpr char small_letter(char c) noexcept {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

}  // namespace

std::string_view other_quantisation(std::string_view method) noexcept {
    for (const Refused& row : k_methods) {
        if (std::ranges::equal(method, row.name, {}, small_letter)) return row.what;
    }
    return {};
}

std::string_view quantisation_of_tensor(std::string_view name) noexcept {
    if (name.find(".switch_mlp.") != std::string_view::npos) return k_mlx;
    if (name.find(".quant_state.bitsandbytes") != std::string_view::npos) return k_bitsandbytes;
    for (const Refused& row : k_suffixes) {
        if (name.ends_with(row.name)) return row.what;
    }
    return {};
}

}  // namespace minim::layouts
