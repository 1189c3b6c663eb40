// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string_view>

#include "base/format_text.h"
#include "check/files.h"
#include "format/format.h"
#include "model/gguf_values.h"

namespace minim::check {
namespace {

// Values that all released models of the family have.
constexpr double k_rope_theta = 5e6;
constexpr float k_norm_eps = 1e-6F;

// A number of general.file_type, its name, and the format of most matrices of such a file. Numbers from 135 on are those of
// ik_llama.cpp.
struct FileType {
    int64_t number;
    std::string_view name;
    Format format;
};

constexpr FileType k_file_types[] = {
    {0, "F32", Format::f32},          {1, "F16", Format::f16},          {2, "Q4_0", Format::q4_0},
    {3, "Q4_1", Format::q4_1},        {7, "Q8_0", Format::q8_0},        {8, "Q5_0", Format::q5_0},
    {9, "Q5_1", Format::q5_1},        {10, "Q2_K", Format::q2_k},       {11, "Q3_K_S", Format::q3_k},
    {12, "Q3_K_M", Format::q3_k},     {13, "Q3_K_L", Format::q3_k},     {14, "Q4_K_S", Format::q4_k},
    {15, "Q4_K_M", Format::q4_k},     {16, "Q5_K_S", Format::q5_k},     {17, "Q5_K_M", Format::q5_k},
    {18, "Q6_K", Format::q6_k},       {19, "IQ2_XXS", Format::iq2_xxs}, {20, "IQ2_XS", Format::iq2_xs},
    {21, "Q2_K_S", Format::q2_k},     {22, "IQ3_XS", Format::iq3_xxs},  {23, "IQ3_XXS", Format::iq3_xxs},
    {24, "IQ1_S", Format::iq1_s},     {25, "IQ4_NL", Format::iq4_nl},   {26, "IQ3_S", Format::iq3_s},
    {27, "IQ3_M", Format::iq3_s},     {28, "IQ2_S", Format::iq2_xs},    {29, "IQ2_M", Format::iq2_s},
    {30, "IQ4_XS", Format::iq4_xs},   {31, "IQ1_M", Format::iq1_m},     {32, "BF16", Format::bf16},
    {38, "MXFP4_MOE", Format::mxfp4}, {39, "NVFP4", Format::nvfp4},     {135, "Q6_0", Format::q6_0},
    {138, "IQ2_K", Format::iq2_k},    {139, "IQ3_K", Format::iq3_k},    {140, "IQ4_K", Format::iq4_k},
    {141, "IQ5_K", Format::iq5_k},    {142, "IQ6_K", Format::iq6_k},    {145, "IQ4_KS", Format::iq4_ks},
    {146, "IQ3_KL", Format::iq3_k},   {147, "IQ2_KS", Format::iq2_ks},  {148, "IQ4_KSS", Format::iq4_kss},
    {150, "IQ5_KS", Format::iq5_ks},  {151, "IQ2_KT", Format::iq2_kt},  {152, "IQ3_KT", Format::iq3_kt},
    {153, "IQ4_KT", Format::iq4_kt},  {154, "IQ3_KS", Format::iq3_ks},  {155, "IQ2_KL", Format::iq2_kl},
    {156, "IQ1_KT", Format::iq1_kt},
};

// Rules for single tensors may change the format of many of them, so one matrix of the format is enough.
void check_file_type(const Opened& opened, Report& report) {
    constexpr std::string_view k_key = "general.file_type";
    const auto number = model::whole_number(opened.checkpoint.metadata(), k_key);
    if (!number) return;
    const auto* type = std::ranges::find(k_file_types, *number, &FileType::number);
    if (type == std::end(k_file_types)) {
        report.warn(FaultClass::config, std::string(k_key),
                    format_text("is {}, which is not known here", *number));
        return;
    }
    const auto has_format = [&](const weights::WeightSpec& weight) {
        return weight.use != weights::Use::vector && weight.format == type->format;
    };
    if (std::ranges::any_of(opened.weights, has_format)) return;
    report.fault(FaultClass::config, std::string(k_key),
                 format_text("is {}, {}, but no matrix of the file is {}", *number, type->name,
                             traits(type->format).name));
}

}  // namespace

void check_configuration(const Opened& opened, Report& report) {
    report.stages.emplace_back("configuration");
    const bool is_gguf = opened.checkpoint.container() == checkpoint::Container::gguf;
    const auto key = [&](std::string_view in_gguf, std::string_view in_json) {
        return is_gguf ? format_text("minimax-m2.{}", in_gguf) : std::string(in_json);
    };
    const model::Config& config = opened.config;
    if (config.rope_theta != k_rope_theta)
        report.fault(FaultClass::config, key("rope.freq_base", "rope_theta"),
                     format_text("is {}; all released models have {}", config.rope_theta, k_rope_theta));
    if (config.norm_eps != k_norm_eps)
        report.fault(FaultClass::config, key("attention.layer_norm_rms_epsilon", "rms_norm_eps"),
                     format_text("is {}; all released models have {}", config.norm_eps, k_norm_eps));
    if (config.rotary_dim * 2 != config.head_dim)
        report.fault(FaultClass::config, key("rope.dimension_count", "rotary_dim"),
                     format_text("is {}; all released models have half of the head, here {} of {}",
                                 config.rotary_dim, config.head_dim / 2, config.head_dim));
    if (is_gguf) check_file_type(opened, report);
}

}  // namespace minim::check
