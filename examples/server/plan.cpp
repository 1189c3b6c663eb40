// SPDX-License-Identifier: Apache-2.0
#include "plan.h"

#include <algorithm>
#include <chrono>

#include <fmt/format.h>

#include "random_id.h"

namespace server {

std::vector<PlannedAnswer> plan_choices(const std::shared_ptr<const std::vector<int32_t>>& prompt,
                                        const SamplingFields& fields, const minim::Constraint* constraint,
                                        int64_t reasoning_budget) {
    std::vector<PlannedAnswer> answers;
    for (int64_t i = 0; i < fields.n_choices; ++i)
        answers.push_back({prompt, make_sampling(fields, constraint, reasoning_budget, i)});
    return answers;
}

AnswerForm read_form(const Fields& request, const Serving& serving, const std::string& id_prefix) {
    AnswerForm form;
    form.id = id_prefix + random_hex(24);
    form.model = request.text("model").value_or(serving.name);
    const auto& names = serving.options.names;
    if (serving.options.requires_name && std::find(names.begin(), names.end(), form.model) == names.end() &&
        request.has("model")) {
        throw ApiError{404,
                       fmt::format("the model '{}' does not exist; this server has '{}'",
                                   form.model.substr(0, 200), serving.name),
                       "model", "model_not_found"};
    }
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    form.created = std::chrono::duration_cast<std::chrono::seconds>(now).count();
    form.is_stream = request.boolean("stream").value_or(false);
    if (const Json* options = request.object("stream_options"))
        form.has_usage = Fields(*options, "stream_options").boolean("include_usage").value_or(false);
    form.has_ids = request.boolean("return_token_ids").value_or(false);
    return form;
}

}  // namespace server
