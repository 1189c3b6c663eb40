// SPDX-License-Identifier: Apache-2.0
// Normalises the messages and tools of a request for chat templates. Clients send different forms; templates fail on
// some of them and silently ignore others.
#pragma once

#include "base/json.h"

namespace minim::chat {

// Changes `messages`, an array of objects:
// - role `developer` of the first message becomes `system`;
// - call arguments that are a JSON text become the object in it, missing ones an empty object;
// - `reasoning` and `reasoning_details[].text` become a missing `reasoning_content`;
// - results of parallel calls with the ids of their calls are sorted in the order of the calls: ids do not appear in the prompt,
//   and the model matches results by order;
// - with `null_content_is_empty`, content that is null or missing becomes an empty text.
// Throws Status::invalid, naming the message, if it is not an array of objects or a call is malformed.
void normalise_messages(json::Value& messages, bool null_content_is_empty);

// Wraps tools without {"type": "function", "function": ...} in it. Throws Status::invalid for a value that is not a tool.
void normalise_tools(json::Value& tools);

}  // namespace minim::chat
