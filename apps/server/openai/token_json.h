// SPDX-License-Identifier: Apache-2.0
// Log-probabilities and timings in the forms of the two OpenAI routes.
#pragma once

#include <span>
#include <string_view>

#include "json.h"
#include "reply_parts.h"

namespace server {

// Returns {"token", "logprob", "bytes", "top_logprobs"} for each token.
Json chat_logprobs(const minim::Model& model, std::span<const Token> tokens);

// Returns {"tokens", "token_logprobs", "top_logprobs", "text_offset"}. Offsets count characters from `offset`, which is advanced.
Json completion_logprobs(const minim::Model& model, std::span<const Token> tokens, size_t& offset);

// Returns the number of characters of a text in UTF-8.
size_t characters(std::string_view text);

Json ids_of(std::span<const Token> tokens);
Json usage_json(const Usage& usage);
Json timings_json(const Usage& usage);

}  // namespace server
