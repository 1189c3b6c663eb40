// SPDX-License-Identifier: Apache-2.0
// Whether and how long the model thinks, and where its thoughts go, in the fields of all APIs.
#pragma once

#include "turn.h"

namespace server {

// Reads `chat_template_kwargs`, `add_generation_prompt` and `continue_final_message`.
void read_template_fields(const Fields& request, Turn& turn);

// Reads these fields:
//   thinking {type: enabled, disabled, adaptive, auto or between_tools; budget_tokens, display}, or a boolean
//   enable_thinking (also in chat_template_kwargs), think
//   reasoning {enabled, effort, max_tokens, exclude}, or a boolean;   reasoning_effort;   output_config.effort
//   thinking_budget_tokens, thinking_token_budget, max_reasoning_tokens
//   include_reasoning, reasoning_split, separate_reasoning, reasoning_format
// A field that turns thinking off counts more than one that turns it on. An effort has no effect unless it is none, or minimal for
// a model whose template has a thinking mode.
void read_thinking(const Fields& request, Turn& turn);

// Returns whether an answer of Anthropic's API has thinking blocks: only if `thinking` asks for them.
bool asks_for_thinking(const Fields& request);

}  // namespace server
