// Brings the messages and tools of a request into the form that chat templates expect. Clients differ in what they send;
// templates fail on some of it and pass over some of it without a word.
#pragma once

#include "base/json.h"

namespace minim::chat {

// Changes `messages`, an array of objects:
// - role `developer` of the first message becomes `system`;
// - call arguments that are a JSON text become the object in it, missing ones an empty object;
// - `reasoning` and `reasoning_details[].text` become a missing `reasoning_content`;
// - results of parallel calls that carry the ids of their calls take the order of the calls: ids never reach the prompt,
//   the model matches results by order;
// - with `null_content_is_empty`, content that is null or missing becomes an empty text.
// Throws Status::invalid, naming the message, when it is no array of objects or a call is malformed.
void normalise_messages(json::Value& messages, bool null_content_is_empty);

// Wraps tools without {"type": "function", "function": ...} in it. Throws Status::invalid for what is no tool.
void normalise_tools(json::Value& tools);

}  // namespace minim::chat
