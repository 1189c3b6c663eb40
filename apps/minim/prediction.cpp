// SPDX-License-Identifier: Apache-2.0
#include "prediction.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "options/find_model.h"
#include "options/open_model.h"
#include "output.h"

namespace cli {
namespace {

constexpr int64_t k_min_tokens = 8;
constexpr double k_largest_difference = 0.25;
constexpr double k_min_token_seconds = 2e-3;

// Returns the rule for the first layers: "blk\.(0|1|2)\..*exps=CPU" for --n-cpu-moe 3.
std::string first_layers_rule(int64_t n_layers) {
    std::vector<int64_t> layers(n_layers);
    std::iota(layers.begin(), layers.end(), 0);
    return fmt::format("blk\\.({})\\..*exps=CPU", fmt::join(layers, "|"));
}

// Returns the options of the plan for the model's placement; none if a plan cannot describe it.
std::optional<minim::PlanOptions> plan_of(const minim::Model& model, const Options& options) {
    const bool caches_by_size = options.expert_cache != 0 && options.expert_cache != MINIM_EXPERT_CACHE_ROOM;
    // Of ranks in other processes, the devices are not known here.
    if (options.backend != "cpu" || caches_by_size || options.parallel.is_given()) return std::nullopt;
    minim::PlanOptions plan;
    plan.devices.emplace();
    bool host_has_layers = false;
    for (const minim_device_memory& device : model.memory()) {
        const std::string name = device.name;
        if (name == "cpu") {
            host_has_layers = device.n_layer > 0;
            continue;
        }
        if (device.n_layer == 0) return std::nullopt;  // the device has only experts
        plan.devices->push_back(device.budget_bytes == 0 ? name
                                                         : fmt::format("{}={}B", name, device.budget_bytes));
        plan.split.push_back(static_cast<double>(device.n_layer));
    }
    if (host_has_layers && !plan.devices->empty()) return std::nullopt;
    if (plan.devices->empty()) return plan;
    plan.overrides = program::joined_overrides(options);
    if (options.cpu_moe) {
        plan.overrides = "exps=CPU";
    } else if (options.n_cpu_moe > 0) {
        const auto n_layer = std::accumulate(plan.split.begin(), plan.split.end(), 0.0);
        plan.overrides = first_layers_rule(std::min(options.n_cpu_moe, static_cast<int64_t>(n_layer)));
    }
    return plan;
}

}  // namespace

std::string comparison(double measured, double predicted) {
    const double difference = measured / predicted - 1.0;
    const std::string percent =
        fmt::format("{:.0f} % {}", 100.0 * std::abs(difference), difference < 0.0 ? "slower" : "faster");
    std::string text = fmt::format("predicted:  {:.2f} tokens/s decode; measured: {}\n", predicted, percent);
    if (difference < -k_largest_difference && 1.0 / predicted >= k_min_token_seconds)
        text += fmt::format(
            "warning: decoding is {} than predicted; `minim plan` shows the parts of a token's time, and "
            "other programs may be using the memory's bandwidth\n",
            percent);
    return text;
}

void print_prediction(const minim::Runtime& runtime, const minim::Model& model, const Options& options,
                      const minim::Session& session, const minim_generate_result& result) {
    if (result.n_generated < k_min_tokens || result.generate_us <= 0) return;
    std::optional<minim::PlanOptions> plan = plan_of(model, options);
    if (!plan) return;
    plan->n_context = static_cast<int64_t>(session.token_count());
    plan->k_format = options.k_format;
    plan->v_format = options.v_format;
    try {
        const auto made =
            nlohmann::json::parse(minim::plan(runtime, program::find_model_or_keep(options.model), *plan));
        const double measured =
            1e6 * static_cast<double>(result.n_generated) / static_cast<double>(result.generate_us);
        print_note(comparison(measured, made["decode_tokens_per_second"].get<double>()));
    } catch (const minim::Exception& error) {
        print_note(fmt::format("predicted:  nothing ({})\n", error.what()));
    }
}

}  // namespace cli
