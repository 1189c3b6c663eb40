// SPDX-License-Identifier: Apache-2.0
#include "plan.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include <fmt/format.h>

#include "llama/settings.h"
#include "random_id.h"

namespace server {

Plan::Plan(Writer w, const ReplyForm& form, const SamplingFields& fields)
    : settings(std::make_shared<const Json>(settings_json(fields))),
      writer(std::move(w)),
      stops(fields.stops),
      stop_ids(fields.stop_ids),
      priority(fields.priority),
      is_stream(form.is_stream),
      keeps_tokens(form.has_ids || form.has_logprobs),
      wants_no_token(fields.max_tokens == 0),
      shows_end(fields.shows_end),
      shows_stop(fields.shows_stop) {}

void add_choices(const std::shared_ptr<const std::vector<int32_t>>& prompt, const SamplingFields& fields,
                 const minim::Constraint* constraint, int64_t reasoning_budget, Plan& plan) {
    for (int64_t i = 0; i < fields.n_choices; ++i)
        plan.answers.push_back({prompt, make_sampling(fields, constraint, reasoning_budget, i)});
}

Plan plan_turn(Writer writer, const ReplyForm& form, const SamplingFields& fields, const Turn& turn,
               const ChatPrompt& prompt) {
    Plan plan(std::move(writer), form, fields);
    add_choices(prompt.ids, fields, prompt.constraint.get(), prompt.reasoning_budget, plan);
    plan.format = prompt.format;
    plan.shows_reasoning = turn.shows_reasoning;
    plan.has_one_call = !turn.parallel_calls;
    plan.is_remembered = !turn.continues;
    return plan;
}

void check_model_name(const Fields& request, const ServedModel& serving) {
    const auto name = request.text("model");
    const auto& names = serving.names;
    if (!name || !serving.options.requires_name ||
        std::find(names.begin(), names.end(), *name) != names.end())
        return;
    throw ApiError{404,
                   fmt::format("the model '{}' does not exist; this server has '{}'", name->substr(0, 200),
                               serving.name),
                   "model", "model_not_found"};
}

ReplyForm read_form(const Fields& request, const ServedModel& serving, const std::string& id_prefix) {
    check_model_name(request, serving);
    ReplyForm form;
    form.id = id_prefix + random_hex(24);
    form.model = request.text("model").value_or(serving.name);
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    form.created = std::chrono::duration_cast<std::chrono::seconds>(now).count();
    form.is_stream = request.boolean("stream").value_or(false);
    if (const Json* options = request.object("stream_options"))
        form.has_usage = Fields(*options, "stream_options").boolean("include_usage").value_or(false);
    form.has_ids = request.boolean("return_token_ids").value_or(false);
    return form;
}

}  // namespace server
