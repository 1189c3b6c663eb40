// SPDX-License-Identifier: Apache-2.0
// A conversation in the form of the chat template, from any API, and its prompt.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fields.h"
#include "output_reader.h"
#include "serving.h"

namespace server {

struct Conversation {
    enum class ToolChoice { automatic, none, required };

    Json messages = Json::array();  // roles system, user, assistant, tool; contents are never null
    Json tools = Json::array();     // in OpenAI's form
    Json kwargs = Json::object();   // variables of the template
    ToolChoice tool_choice = ToolChoice::automatic;
    std::string tool_name;       // the one function to call; "": any
    bool parallel_calls = true;  // several calls in an answer
    bool adds_generation_prompt = true;
    bool continues = false;                   // the answer continues the last message, an assistant's
    bool thinks = true;                       // false: the prompt has an empty think block
    std::optional<int64_t> reasoning_budget;  // tokens of thought, at least 1; none: no limit
    std::string schema;                       // JSON Schema of the content; "": any text
};

struct ChatPrompt {
    std::shared_ptr<const std::vector<int32_t>> ids;
    OutputFormat format;
    std::shared_ptr<const minim::Constraint> constraint;  // or null
    int64_t reasoning_budget = 0;                         // 0: no limit
};

// Reads the fields `messages`, `tools`, `tool_choice`, `parallel_tool_calls`, `chat_template_kwargs`, `add_generation_prompt`,
// `continue_final_message`, `reasoning_effort` and `response_format` of an OpenAI request.
Conversation read_conversation(const Fields& request, Serving& serving);

// Adds a message: joins system messages into the first one, gives an assistant's message the reasoning that its client
// dropped.
void add_message(Json message, Conversation& conversation, Serving& serving);

// Removes the text at the start of some clients' system prompts that changes with each request: it would defeat the
// prefix cache.
std::string without_billing_header(const std::string& system);

// Returns the prompt as text.
std::string render(const Conversation& conversation, const Serving& serving);

// Sets whether and how long the model thinks, from a number of tokens. Without a number, and with -1, the server's setting is
// used.
void set_reasoning_budget(std::optional<int64_t> n_tokens, Conversation& conversation);

// Makes the prompt. Throws ApiError 400, with both counts, if the prompt is too long for the context.
ChatPrompt make_prompt(const Conversation& conversation, Serving& serving);

// Throws ApiError 400 if a prompt of n_tokens tokens leaves no room for an answer.
void check_length(size_t n_tokens, const Serving& serving, const char* field);

}  // namespace server
