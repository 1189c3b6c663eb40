// SPDX-License-Identifier: Apache-2.0
// Shared by all routes: the model, facts about it, and the options.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "minim/minim.hpp"
#include "options.h"
#include "turn_memory.h"

namespace server {

// Keeps compiled constraints, because requests repeat them. Used on the worker's thread.
class Constraints {
  public:
    explicit Constraints(const minim::Model& model) : model_(model) {}
    std::shared_ptr<const minim::Constraint> of_schema(const std::string& schema, bool after_reasoning);
    // `optional`: the answer may also be text; once the model begins a call, the call must fit the tools.
    std::shared_ptr<const minim::Constraint> of_tools(const std::string& tools, const std::string& name,
                                                      bool single, bool after_reasoning, bool optional);

  private:
    template <typename Make>
    std::shared_ptr<const minim::Constraint> find_or_make(std::string key, Make make);

    const minim::Model& model_;
    std::map<std::string, std::shared_ptr<const minim::Constraint>> known_;
};

struct Serving {
    // Opens the model. Throws minim::Exception, or std::runtime_error.
    explicit Serving(const Options& o);

    const Options options;
    const minim::Runtime runtime;
    const minim::Model model;
    const minim_model_info info;
    const std::string name;  // of the model in answers
    const int64_t started;   // seconds since 1970
    const std::string chat_template;
    const minim_recommended_sampling recommended;  // by the checkpoint
    const SamplingDefaults sampling;               // all are set
    const int32_t think_end;                       // the id of </think>, or -1
    minim::Engine engine;
    const int64_t n_context;  // tokens of one request, as the engine has taken them
    const int64_t n_slots;    // requests at once

    // Used only on the worker's thread.
    TurnMemory turns;
    ReasoningMemory reasoning;
    Constraints constraints;
};

}  // namespace server
