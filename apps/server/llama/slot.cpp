// SPDX-License-Identifier: Apache-2.0
#include "llama/slot.h"

#include <algorithm>

namespace server {

Json slot_json(size_t id, int64_t n_context, const Job* job) {
    Json slot = {{"id", id}, {"n_ctx", n_context}, {"is_processing", job != nullptr}};
    if (job == nullptr) return slot;
    const minim_request_state state = job->state();
    const auto n_past = static_cast<int64_t>(state.n_prompt_done + state.n_generated);
    const auto n_decoded = static_cast<int64_t>(job->n_generated());
    const int64_t n_predict = job->settings->at("n_predict");
    slot["id_task"] = job->number();
    slot["n_prompt"] = job->prompt->size();
    slot["n_prompt_done"] = state.n_prompt_done;
    slot["n_cached"] = state.n_cached;
    slot["n_decoded"] = n_decoded;
    slot["n_past"] = n_past;
    slot["fill"] = static_cast<double>(n_past) / static_cast<double>(n_context);
    slot["speculative"] = job->settings->at("speculative.n_max") != 0;
    slot["params"] = *job->settings;
    const Json next = {{"has_next_token", true},
                       {"n_remain", n_predict < 0 ? -1 : std::max<int64_t>(n_predict - n_decoded, 0)},
                       {"n_decoded", n_decoded}};
    slot["next_token"] = Json::array({next});
    return slot;
}

}  // namespace server
