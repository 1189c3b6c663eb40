// The messages of a request, checked and brought into the order in which the template prints them, so that
// rendering meets no surprises: a wrong sequence is an error here and never a message that silently goes
// missing.
#pragma once

#include <cstddef>
#include <vector>

#include "base/json.h"

namespace minim::chat {

enum class Role { user, assistant, tool };

struct Turn {
    Role role;
    const json::Value* message;  // an object
    size_t index;                // its place in the request, for error messages
};

struct Conversation {
    const json::Value* system = nullptr;  // the first message if it is of role system or developer
    std::vector<Turn> turns;              // all others; points into the tree it was read from
};

// Results of parallel calls that carry the ids of their calls are put in the order of the calls: ids never
// reach the prompt, the model matches results by order. Throws Status::invalid, naming the message, when
// `messages` is no array of objects, a role is unknown, a system message is not the first, or a tool message
// follows no call.
Conversation read_conversation(const json::Value& messages);

}  // namespace minim::chat
