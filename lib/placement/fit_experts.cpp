#include "placement/fit_experts.h"

#include <algorithm>

#include "backend/device_memory.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/format_text.h"
#include "model/minimax_m2.h"
#include "model/weights.h"
#include "weights/device_target.h"

namespace minim::placement {
namespace {

using backend::k_kv_page_tokens;
using model::Share;
using model::Stage;

constexpr int64_t k_step_rows = 512;
constexpr uint64_t k_spare_part = 100;

uint64_t kv_bytes(int64_t n_layer, int64_t n_context, const model::Config& config) {
    const backend::KvLayout layout = {n_layer, config.n_head_kv, config.head_dim, Format::f16, Format::f16};
    const int64_t n_pages = (n_context + k_kv_page_tokens - 1) / k_kv_page_tokens;
    uint64_t bytes = 0;
    return checked_mul(static_cast<uint64_t>(n_pages), static_cast<uint64_t>(layout.page_bytes()), bytes)
               ? bytes
               : UINT64_MAX;
}

// What steps take on each stage's device: taken once, and given back.
std::vector<uint64_t> work_bytes(std::span<const Stage> stages, const model::Config& config,
                                 int64_t n_context) {
    const auto used = [](const Stage& stage) {
        return stage.backend->memory().used(backend::MemoryUse::work);
    };
    std::vector<uint64_t> bytes;
    for (const Stage& stage : stages) bytes.push_back(used(stage));
    const model::StepSpace space(stages, config, std::min(k_step_rows, n_context), n_context);
    for (size_t s = 0; s < stages.size(); ++s) bytes[s] = used(stages[s]) - bytes[s];
    return bytes;
}

uint64_t share_bytes(const Share& share, std::span<const weights::WeightSpec> weights) {
    return weights::device_bytes(model::part_of(share, weights).weights);
}

[[noreturn]] void fail_no_room(const Share& share, uint64_t needed, uint64_t available) {
    ErrorFacts facts;
    facts.requested = needed > INT64_MAX ? INT64_MAX : static_cast<int64_t>(needed);
    facts.available = static_cast<int64_t>(available);
    facts.device = DeviceName(share.backend->name());
    throw Error(
        Status::out_of_device_memory, Reason::none,
        format_text("{}: layers {}-{} need {} bytes without experts, for weights, keys and values and work "
                    "space; {} bytes available{}",
                    share.backend->name(), share.first_layer, share.first_layer + share.n_layer - 1, needed,
                    available, backend::budget_text(share.backend->memory())),
        facts);
}

}  // namespace

void fit_experts(int64_t n_context, const model::Config& config, std::span<const weights::WeightSpec> weights,
                 const std::vector<bool>& is_said, const std::shared_ptr<const backend::Backend>& host,
                 std::span<Stage> stages) {
    if (n_context > INT32_MAX)
        fail(Status::invalid, "room for a context of {} tokens is not possible", n_context);
    const auto has_room_of_its_own = [](const Stage& stage) {
        return !stage.backend->uses_host_memory() && stage.backend->available_bytes() != UINT64_MAX;
    };
    if (std::ranges::none_of(stages, has_room_of_its_own)) return;
    // Without the experts that may go.
    for (Stage& stage : stages)
        if (stage.experts.empty()) stage.experts.assign(static_cast<size_t>(stage.n_layer), stage.backend);
    size_t next = 0;
    for (Stage& stage : stages)
        for (auto& place : stage.experts)
            if (!is_said[next++] && has_room_of_its_own(stage)) place = host;
    const std::vector<uint64_t> work = work_bytes(stages, config, n_context);
    const std::vector<Share> shares = model::shares_of(stages);
    for (size_t s = 0; s < stages.size(); ++s) {
        Stage& stage = stages[s];
        if (!has_room_of_its_own(stage)) continue;
        const uint64_t available = stage.backend->available_bytes();
        const uint64_t usable = available - available / k_spare_part;
        uint64_t needed = kv_bytes(stage.n_layer, n_context, config);
        for (const uint64_t more : {share_bytes(shares[s], weights), work[s]})
            if (!checked_add(needed, more, needed)) needed = UINT64_MAX;
        if (needed > usable) fail_no_room(shares[s], needed, usable);
        uint64_t left = usable - needed;
        for (int64_t i = stage.n_layer - 1; i >= 0; --i) {
            const int64_t layer = shares[s].first_layer + i;
            if (is_said[static_cast<size_t>(layer)]) continue;
            const uint64_t bytes = share_bytes({.backend = stage.backend, .expert_layers = {layer}}, weights);
            if (bytes > left) break;
            left -= bytes;
            stage.experts[static_cast<size_t>(i)] = stage.backend;
        }
    }
}

}  // namespace minim::placement
