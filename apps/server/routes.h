// SPDX-License-Identifier: Apache-2.0
// The functions of the routes. They run on the worker's thread, and throw ApiError or minim::Exception.
#pragma once

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
Prepared models(const HttpRequest& request, ServedModel& serving);
Prepared model_of_name(const HttpRequest& request, ServedModel& serving);
Prepared slot_action(const HttpRequest& request, ServedModel& served);
Prepared props(const HttpRequest& request, ServedModel& serving);
Prepared tokenizer_info(const HttpRequest& request, ServedModel& serving);
// Always throws ApiError 501.
Prepared no_embeddings(const HttpRequest& request, ServedModel& serving);

}  // namespace server
