// SPDX-License-Identifier: Apache-2.0
// Shared by all routes: the model, facts about it, and the options.
#pragma once

#include <cstdint>
#include <string>

#include "constraints.h"
#include "minim/minim.hpp"
#include "options.h"
#include "turn_memory.h"

namespace server {

// The work of a process that follows another one, which serves, is done.
struct FollowedToTheEnd {};

struct Serving {
    // Opens the model. Throws minim::Exception, or std::runtime_error. If several processes share the model, those that do not lead
    // compute for the one that does until it closes the model; then FollowedToTheEnd is thrown.
    explicit Serving(const Options& o);

    const Options options;
    const minim::Runtime runtime;
    const minim::Model model;
    const minim_model_info info;
    const std::string name;                        // of the model in answers
    const int64_t started;                         // seconds since 1970
    const std::string chat_template;               // the text that conversations are rendered with
    const minim_recommended_sampling recommended;  // by the checkpoint
    const SamplingDefaults sampling;               // all are set
    const size_t longest_token;                    // bytes of the longest token's text
    minim::Engine engine;
    const int64_t n_context;  // tokens of one request, as the engine has taken them
    const int64_t n_slots;    // requests at once

    // Used by the threads that prepare requests.
    TurnMemory turns;
    ReasoningMemory reasoning;
    Constraints constraints;
};

}  // namespace server
