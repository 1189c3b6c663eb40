// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string_view>

#include "base/format_text.h"
#include "check/files.h"
#include "convert/recipe.h"
#include "format/format.h"
#include "model/gguf_values.h"

namespace minim::check {
namespace {

// Values that all released models of the family have.
constexpr double k_rope_theta = 5e6;
constexpr float k_norm_eps = 1e-6F;

// Rules for single tensors may change the format of many of them, so one matrix of the format is enough.
void check_file_type(const Opened& opened, Report& report) {
    constexpr std::string_view k_key = "general.file_type";
    const auto number = model::whole_number(opened.checkpoint.metadata(), k_key);
    if (!number) return;
    const auto recipe = convert::recipe_of_file_type(*number);
    if (!recipe) {
        report.warn(FaultClass::config, std::string(k_key),
                    format_text("is {}, which is not known here", *number));
        return;
    }
    const auto has_format = [&](const weights::WeightSpec& weight) {
        return weight.use != weights::Use::vector &&
               convert::is_type_of_file(*number, weight.format, weight.cols);
    };
    if (std::ranges::any_of(opened.weights, has_format)) return;
    report.fault(FaultClass::config, std::string(k_key),
                 format_text("is {}, {}, but no matrix of the file is {}", *number, recipe->name,
                             traits(recipe->type).name));
}

}  // namespace

void check_configuration(const Opened& opened, Report& report) {
    report.stages.emplace_back("configuration");
    const bool is_gguf = opened.checkpoint.container() == checkpoint::Container::gguf;
    const auto key = [&](std::string_view in_gguf, std::string_view in_json) {
        const bool is_m2 = opened.config.family == model::Family::m2;
        return is_gguf ? format_text("{}.{}", is_m2 ? "minimax-m2" : "minimax-m3", in_gguf)
                       : std::string(in_json);
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
