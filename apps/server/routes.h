// SPDX-License-Identifier: Apache-2.0
// The functions of the routes. They run on the worker's thread, and throw ApiError or minim::Exception.
#pragma once

#include "plan.h"
#include "serving.h"

namespace server {

Prepared chat_completions(const HttpRequest& request, Serving& serving);
Prepared completions(const HttpRequest& request, Serving& serving);
Prepared responses(const HttpRequest& request, Serving& serving);
Prepared messages(const HttpRequest& request, Serving& serving);
Prepared count_tokens(const HttpRequest& request, Serving& serving);

Prepared llama_completion(const HttpRequest& request, Serving& serving);
Prepared llama_infill(const HttpRequest& request, Serving& serving);

Prepared tokenize(const HttpRequest& request, Serving& serving);
Prepared detokenize(const HttpRequest& request, Serving& serving);
Prepared apply_template(const HttpRequest& request, Serving& serving);
Prepared models(const HttpRequest& request, Serving& serving);
Prepared model_of_name(const HttpRequest& request, Serving& serving);
Prepared props(const HttpRequest& request, Serving& serving);
Prepared tokenizer_info(const HttpRequest& request, Serving& serving);
// Always throws ApiError 501.
Prepared no_embeddings(const HttpRequest& request, Serving& serving);

}  // namespace server
