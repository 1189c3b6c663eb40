// SPDX-License-Identifier: Apache-2.0
// Log-probabilities and timings in the forms of the two OpenAI routes and of llama.cpp's.
#pragma once

#include <span>
#include <string_view>

#include "json.h"
#include "reply_parts.h"

namespace server {

// Returns {"token", "logprob", "bytes", "top_logprobs"} for each token.
Json chat_logprobs(const minim::Model& model, std::span<const Token> tokens);

// Returns {"token", "logprob", "bytes"}.
Json token_json(const minim::Model& model, int32_t id, float logprob);

// Returns {"tokens", "token_logprobs", "top_logprobs", "text_offset"}. Offsets count characters from `offset`, which is advanced.
// top_logprobs have the token itself and the n_top likeliest. A token without log-probability has null in both.
Json completion_logprobs(const minim::Model& model, std::span<const Token> tokens, int64_t n_top,
                         size_t& offset);

// Returns vLLM's prompt_logprobs: null for the first token of the prompt; for each other one {"id": {"logprob", "rank",
// "decoded_token"}} of itself and the n_top likeliest. `tokens`: the tokens after the first.
Json prompt_logprobs(const minim::Model& model, std::span<const Token> tokens, int64_t n_top);

// Returns the number of characters of a text in UTF-8.
size_t characters(std::string_view text);

Json ids_of(std::span<const Token> tokens);
Json usage_json(const Usage& usage);
Json timings_json(const Usage& usage);

}  // namespace server
