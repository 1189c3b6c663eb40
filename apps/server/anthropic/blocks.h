// SPDX-License-Identifier: Apache-2.0
// Messages of Anthropic's API: lists of blocks, among which are thoughts, calls and tool results.
#pragma once

#include "content.h"
#include "turn.h"

namespace server {

// Returns whether a content has blocks that a list of OpenAI's parts cannot have. Some clients send them to /v1/chat/completions.
bool has_blocks(const Json& content);

// Adds the message of an assistant: text, thoughts and calls. Blocks of tools that ran on a provider's servers are left out.
void add_assistant_blocks(const Fields& message, const Json& blocks, Turn& turn, ServedModel& serving);

// Adds the message of a user. Results of tools come before the text, as messages of their own.
void add_user_blocks(const Fields& message, const Json& blocks, Unreadable unreadable, Turn& turn,
                     ServedModel& serving);

// Returns whose turn a message is; a user's message with tool results is a tool's.
Speaker speaker_of_blocks(const Json& message);

}  // namespace server
