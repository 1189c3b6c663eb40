// SPDX-License-Identifier: Apache-2.0
// A conversation in the form of the chat template, from any API, and its prompt.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "error.h"
#include "fields.h"
#include "output_reader.h"
#include "serving.h"
#include "structured_output.h"

namespace server {

struct Turn {
    enum class ToolChoice { automatic, none, required };

    Json messages = Json::array();  // roles system, user, assistant, tool; contents are never null
    Json tools = Json::array();     // in OpenAI's form
    Json kwargs = Json::object();   // variables of the template
    ToolChoice tool_choice = ToolChoice::automatic;
    std::string tool_name;       // the one function to call; "": any
    bool parallel_calls = true;  // several calls in an answer
    bool adds_generation_prompt = true;
    bool continues = false;  // the answer continues the last message, an assistant's
    bool thinks = true;      // false: the prompt has an empty think block
    // Of a template that has a thinking mode:
    std::string thinking_mode;                // "enabled" or "adaptive" if the request says so, else ""
    bool has_minimal_effort = false;          // as if thinking were off
    std::optional<int64_t> reasoning_budget;  // tokens of thought, at least 1; none: no limit
    std::optional<int32_t> reasoning;         // MINIM_REASONING_*, if the request says where thoughts go
    bool shows_reasoning = true;              // false: thoughts are left out of the answer
    bool has_reasoning_details = false;       // thoughts also come as `reasoning_details`
    bool answers_with_function_call = false;  // the answer has `function_call` instead of `tool_calls`
    TextRule rule;                            // of the content
    std::optional<int64_t> n_kept_tokens;     // only so many tokens at the end of the prompt are used
};

struct ChatPrompt {
    std::shared_ptr<const std::vector<int32_t>> ids;
    OutputFormat format;
    std::shared_ptr<const minim::Constraint> constraint;  // or null
    int64_t reasoning_budget = 0;                         // 0: no limit
};

// Read the fields of a request that make its prompt and say what the answer may be: messages, tools, thinking, constraints.
Turn read_chat(const Fields& request, ServedModel& serving);       // /v1/chat/completions
Turn read_anthropic(const Fields& request, ServedModel& serving);  // /v1/messages
Turn read_responses(const Fields& request, ServedModel& serving);  // /v1/responses

// Reads the fields that all three have: tools, their choice, thinking, and constraints. Messages come first: `tools` may be refused
// for their sake.
enum class ToolForm;
void read_common(const Fields& request, ToolForm form, Turn& turn);

// Adds a message: joins system messages into the first one, gives an assistant's message the reasoning that its client
// dropped, and adds reminders after tool results to the last result. (As a message of the user they would look like a new
// question, and the template leaves out the reasoning before one.)
void add_message(Json message, Turn& turn, ServedModel& serving);

// Removes the text at the start of some clients' system prompts that changes with each request: it would defeat the
// prefix cache.
std::string without_billing_header(const std::string& system);

// Returns the prompt as text.
std::string render(const Turn& turn, const ServedModel& serving);

// Sets whether and how long the model thinks, from a number of tokens. Without a number, and with -1, the server's setting is
// used.
void set_reasoning_budget(std::optional<int64_t> n_tokens, Turn& turn);

// Returns the token ids of the prompt, however many.
std::vector<int32_t> prompt_ids(const Turn& turn, ServedModel& serving);

// Makes the prompt. Throws ApiError 400, with both counts in the words of the API, if the prompt is too long for the context.
ChatPrompt make_prompt(const Turn& turn, ServedModel& serving, ApiFamily family);

// Throws ApiError 400 if a prompt of n_tokens tokens leaves no room for an answer. `is_bound`: the prompt has at least so many.
void check_length(size_t n_tokens, const ServedModel& serving, const char* field, ApiFamily family,
                  bool is_bound = false);

// Returns the constraint of a rule; null for any text. Throws ApiError 400 that names the field.
std::shared_ptr<const minim::Constraint> constraint_of(const TextRule& rule, Preamble preamble,
                                                       ServedModel& serving);

}  // namespace server
