// SPDX-License-Identifier: Apache-2.0
// A request to generate, prepared by the worker: all that the loop needs to submit it to the engine and write the answer.
#pragma once

#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "anthropic/messages_writer.h"
#include "error.h"
#include "http/http_message.h"
#include "llama/llama_writer.h"
#include "openai/chat_writer.h"
#include "openai/completion_writer.h"
#include "openai/responses_writer.h"
#include "sampling_fields.h"
#include "turn.h"

namespace server {

using Writer = std::variant<ChatWriter, CompletionWriter, LlamaWriter, MessagesWriter, ResponsesWriter>;

struct PlannedChoice {
    std::shared_ptr<const std::vector<int32_t>> prompt;
    minim::Sampling sampling;
};

struct Plan {
    // `w` has been made from `form`.
    Plan(Writer w, const ReplyForm& form, const SamplingFields& fields);

    std::vector<PlannedChoice> answers;
    std::shared_ptr<const Json> settings;  // of sampling
    OutputFormat format;
    Writer writer;
    ApiFamily family = ApiFamily::openai;
    std::vector<std::string> stops;
    std::vector<int32_t> stop_ids;
    int32_t priority = 0;
    bool is_stream = false;
    bool keeps_tokens = false;    // log-probabilities or ids are asked for
    bool wants_no_token = false;  // max_tokens 0
    bool shows_reasoning = true;
    bool shows_end = false;      // the answer includes the text of the token that ends it
    bool shows_stop = false;     // the same for a stop text, and for a stop token of the request
    bool has_one_call = false;   // later calls are left out
    bool is_remembered = false;  // the answer may come back as a turn
};

// What a route returns: a whole answer at once, or a plan to generate one.
using Prepared = std::variant<HttpResponse, Plan>;

// Adds the n choices of one prompt.
void add_choices(const std::shared_ptr<const std::vector<int32_t>>& prompt, const SamplingFields& fields,
                 const minim::Constraint* constraint, int64_t reasoning_budget, Plan& plan);

// Plans the answer to a conversation.
Plan plan_turn(Writer writer, const ReplyForm& form, const SamplingFields& fields, const Turn& turn,
               const ChatPrompt& prompt);

// Throws ApiError 404 for a model of another name, if names are enforced. All routes that take a `model` use it.
void check_model_name(const Fields& request, const ServedModel& serving);

// Reads the fields that decide the form of the answer: `stream`, `stream_options`, `model`, `return_token_ids`.
ReplyForm read_form(const Fields& request, const ServedModel& serving, const std::string& id_prefix);

}  // namespace server
