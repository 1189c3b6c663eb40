// SPDX-License-Identifier: Apache-2.0
// What requests are served with: the things that all models share, and one open model with facts about it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "constraints.h"
#include "job_queue.h"
#include "metrics.h"
#include "minim/minim.hpp"
#include "options.h"
#include "turn_memory.h"

namespace server {

// The work of a process that follows another one, which serves, is done.
struct FollowedToTheEnd {};

// Shared by all models.
struct Serving {
    explicit Serving(const Options& o);

    const Options options;
    const minim::Runtime runtime;
    ReasoningMemory reasoning;  // call ids are unique, whichever model has made them
};

// An open model and its engine.
struct ServedModel {
    // Opens the model at `model_path`. `given_names`: of the model in requests and answers; empty: the file's. Throws minim::Exception, or
    // std::runtime_error. If several processes share the model, those that do not lead compute for the one that does until it closes
    // the model; then FollowedToTheEnd is thrown.
    ServedModel(Serving& shared, EventLoop& loop, std::string model_path,
                const std::vector<std::string>& given_names, const minim::Progress& progress = {});
    ServedModel(const ServedModel&) = delete;
    ServedModel& operator=(const ServedModel&) = delete;

    const Options& options;
    const std::string path;
    const minim::Model model;
    const minim_model_info info;
    const std::vector<std::string> names;          // at least one
    const std::string name;                        // the first one, in answers
    const minim_chat_markup markup;                // of the model's chat format
    const std::string chat_template;               // the text that conversations are rendered with
    const minim_recommended_sampling recommended;  // by the checkpoint
    const SamplingDefaults sampling;               // all are set
    const size_t longest_token;                    // bytes of the longest token's text
    minim::Engine engine;
    const int64_t n_context;  // tokens of one request, as the engine has taken them
    const int64_t n_slots;    // requests at once

    // Used by the threads that prepare requests.
    TurnMemory turns;
    ReasoningMemory& reasoning;
    Constraints constraints;

    // Used by the loop's thread.
    JobQueue jobs;
    std::shared_ptr<Metrics>
        metrics;  // set by the owner: counts outlive a model that is closed and opened again
};

// Returns how many requests run at once if memory suffices.
int64_t slots_of(const Options& options);

// Writes the memory of each device and the sizes that were chosen to the log.
void log_sizes(const ServedModel& served);

// Read the prefix cache from the file of --save-prefixes, if there is one, and write it. A file that cannot be read is named in the log.
void load_prefixes(ServedModel& served);
void save_prefixes(ServedModel& served);

// Saves what was learnt about experts to the file of --expert-profile, if there is one and experts are cached.
void save_expert_profile(const ServedModel& served);

}  // namespace server
