// SPDX-License-Identifier: Apache-2.0
#include "base/format_text.h"
#include "base/json.h"
#include "placement/plan.h"

namespace minim::placement {
namespace {

std::string json_string(std::string_view text) {
    std::string out;
    json::append_quoted(out, text);
    return out;
}

std::string bytes_of(const PlannedPlace& place) {
    return format_text(
        R"("dense_bytes": {}, "expert_bytes": {}, "kv_bytes": {}, "work_bytes": {}, "free_bytes": {})",
        place.dense_bytes, place.expert_bytes, place.kv_bytes, place.work_bytes, place.free_bytes);
}

}  // namespace

std::string to_json(const Plan& plan) {
    std::string devices;
    for (const PlannedPlace& place : plan.devices)
        devices += format_text(R"({}{{"name": {}, {}, "n_layers": {}, "n_experts": {}}})",
                               devices.empty() ? "" : ", ", json_string(place.name), bytes_of(place),
                               place.n_layers, place.n_experts);
    std::string choices;
    for (const std::string& choice : plan.choices)
        choices += (choices.empty() ? "" : ", ") + json_string(choice);
    const DecodeSeconds& seconds = plan.decode_seconds;
    std::string text = format_text(R"({{"fits": {}, "devices": [{}], "host": {{{}}}, )", plan.fits, devices,
                                   bytes_of(plan.host));
    text += format_text(R"("bytes_per_token": {{"dense": {}, "experts": {}, "kv_at_context": {}}}, )",
                        plan.token_dense_bytes, plan.token_expert_bytes, plan.token_kv_bytes);
    text += format_text(R"("decode_tokens_per_second": {:.6g}, "prompt_tokens_per_second": {:.6g}, )",
                        plan.decode_tokens_per_second, plan.prompt_tokens_per_second);
    text += format_text(
        R"("decode_seconds": {{"dense": {:.6g}, "kv_cache": {:.6g}, "device_experts": {:.6g}, "host_experts": {:.6g}, )",
        seconds.dense, seconds.kv_cache, seconds.device_experts, seconds.host_experts);
    text += format_text(R"("launches": {:.6g}, "hand_over": {:.6g}}}, "choices": [{}], )", seconds.launches,
                        seconds.hand_over, choices);
    text += format_text(R"("n_context": {}, "kv_tokens": {}, "n_sequences": {}, "n_ubatch": {}}})",
                        plan.n_context, plan.n_kv_tokens, plan.n_sequences, plan.n_ubatch);
    return text;
}

}  // namespace minim::placement
