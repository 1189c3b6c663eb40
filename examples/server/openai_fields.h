// SPDX-License-Identifier: Apache-2.0
// Fields that /v1/chat/completions and /v1/responses share.
#pragma once

#include <string>

#include "conversation.h"

namespace server {

// Reads `tools`, in the wrapped or the flat form, and returns them in the wrapped form.
Json read_tools(const Fields& request);
// Returns the function of a tool after it has checked its name and parameters.
Json check_function(Json function, const std::string& place);
void read_tool_choice(const Fields& request, Conversation& conversation);
// Refuses a `tool_name` that no tool has.
void require_tool(const Fields& request, const Conversation& conversation);
void read_kwargs(const Fields& request, Conversation& conversation);
void read_reasoning_budget(const Fields& request, Conversation& conversation);
void read_response_format(const Fields& request, Conversation& conversation);

}  // namespace server
