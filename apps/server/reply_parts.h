// SPDX-License-Identifier: Apache-2.0
// An answer while it is generated, in a form for all APIs and for streams and complete bodies.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "job_queue.h"
#include "output_reader.h"

namespace server {

struct Call {
    std::string id;
    std::string name;
    std::string arguments;  // JSON
};

struct ReplyText {
    std::string reasoning;
    std::string content;
    std::vector<Call> calls;
    std::vector<Token> tokens;         // if log-probabilities or ids were asked for
    std::string finish_reason;         // stop, length, tool_calls
    std::string stop_text;             // the stop text that ended the answer, or ""
    bool last_call_is_cut = false;     // its arguments are not complete JSON: it must not be executed
    std::vector<Token> prompt_tokens;  // after the first one, if their log-probabilities were asked for
    minim_request_state state = MINIM_REQUEST_STATE_INIT;  // at the end
    int32_t slot = -1;
};

// Token counts and times of all answers to a request together.
struct Usage {
    uint64_t n_prompt = 0;
    uint64_t n_cached = 0;
    uint64_t n_generated = 0;
    uint64_t n_reasoning = 0;
    uint64_t prompt_us = 0;
    uint64_t generate_us = 0;
    uint64_t n_drafted = 0;
    uint64_t n_drafts_accepted = 0;

    uint64_t n_total() const { return n_prompt + n_generated; }

    // Counts an answer. Its prompt is counted by the caller, because several answers may have the same one.
    void add_answer(const minim_request_state& state) {
        n_generated += state.n_generated;
        n_reasoning += state.n_reasoning;
        n_drafted += state.n_drafted;
        n_drafts_accepted += state.n_drafts_accepted;
        prompt_us = std::max(prompt_us, state.prompt_us);
        generate_us = std::max(generate_us, state.generate_us);
    }
};

// The new parts of an answer.
struct News {
    size_t choice = 0;
    std::vector<Delta> deltas;
    std::vector<Token> tokens;                  // if they were asked for
    std::span<const Token> prompt_tokens = {};  // those of ReplyText
    int32_t slot = -1;
    const Job* job = nullptr;  // null after its end
};

// Options for the form of an answer that several APIs share.
struct ReplyForm {
    std::string id;
    std::string model;
    int64_t created = 0;
    bool is_stream = false;
    bool has_logprobs = false;
    bool has_ids = false;                       // return_token_ids
    bool has_usage = false;                     // stream_options.include_usage
    std::vector<std::string> reasoning_fields;  // names of a chat's fields for thoughts
    bool has_details = false;                   // thoughts also come as reasoning_details
    bool has_function_call = false;   // a call comes as function_call, as before there were tool_calls
    uint64_t n_prompt = 0;            // tokens, of all prompts
    std::vector<int32_t> prompt_ids;  // if asked for
};

}  // namespace server
