// SPDX-License-Identifier: Apache-2.0
// The functions of the routes. They run on the worker's thread, and throw ApiError or minim::Exception.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "models.h"
#include "plan.h"
#include "serving.h"

namespace server {

Prepared chat_completions(const HttpRequest& request, ServedModel& serving);
Prepared completions(const HttpRequest& request, ServedModel& serving);
Prepared responses(const HttpRequest& request, ServedModel& serving);
Prepared messages(const HttpRequest& request, ServedModel& serving);
Prepared count_tokens(const HttpRequest& request, ServedModel& serving);

Prepared llama_completion(const HttpRequest& request, ServedModel& serving);
Prepared llama_infill(const HttpRequest& request, ServedModel& serving);

Prepared tokenize(const HttpRequest& request, ServedModel& serving);
Prepared detokenize(const HttpRequest& request, ServedModel& serving);
Prepared apply_template(const HttpRequest& request, ServedModel& serving);
Prepared slot_action(const HttpRequest& request, ServedModel& served);
Prepared props(const HttpRequest& request, ServedModel& serving);
Prepared tokenizer_info(const HttpRequest& request, ServedModel& serving);
// Always throws ApiError 501.
Prepared no_embeddings(const HttpRequest& request, ServedModel& serving);

// These are short and run on the loop's thread. None: a model answers the request.
std::optional<HttpResponse> list_of_models(const HttpRequest& request, Models& models);
std::optional<HttpResponse> model_of_name(const HttpRequest& request, Models& models);
std::optional<HttpResponse> load_model(const HttpRequest& request, Models& models);
std::optional<HttpResponse> unload_model(const HttpRequest& request, Models& models);
std::optional<HttpResponse> router_props(const HttpRequest& request, Models& models);

// Returns a parameter of the query, decoded; "": it is not there.
std::string query_value(const std::string& query, std::string_view name);

}  // namespace server
