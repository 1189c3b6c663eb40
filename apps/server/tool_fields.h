// SPDX-License-Identifier: Apache-2.0
// The tools of a request and which of them the answer may or must call, in the forms of all APIs.
#pragma once

#include "turn.h"

namespace server {

// What the tools of a route are. Tools that are not functions of the client (those that run on a provider's servers, and OpenAI's
// custom tools) are left out beside functions, with a note in the log: agents always offer them, and the model can do without.
enum class ToolForm {
    chat,      // {"type": "function", "function": {...}}; a request that has only other tools is refused
    messages,  // {"name", "input_schema"}; the same
    responses  // {"type": "function", "name", ...}; other tools are left out in any case
};

// Reads `tools` and `functions` into the conversation, in OpenAI's wrapped form. Each route also takes the forms of the others.
void read_tools(const Fields& request, ToolForm form, Turn& turn);

// Reads `tool_choice`, `function_call` and `parallel_tool_calls`. A choice is one of the words auto, none, required and any, or an
// object whose type is one of these, function, tool or allowed_tools.
void read_tool_choice(const Fields& request, Turn& turn);

}  // namespace server
