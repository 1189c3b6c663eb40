// SPDX-License-Identifier: Apache-2.0
// Compiled constraints, which requests repeat. Any thread. Equal requests at the same time share one compilation, failures are
// remembered like successes, and the least recently used entries are dropped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>

#include "minim/minim.hpp"
#include "recent.h"
#include "structured_output.h"

namespace server {

// What may precede the text that a constraint is for.
enum class Preamble : uint8_t {
    none,
    reasoning,           // the prompt opens it
    optional_reasoning,  // the model decides
};

class Constraints {
  public:
    using Constraint = std::shared_ptr<const minim::Constraint>;

    explicit Constraints(const minim::Model& model)
        : model_(model), think_end_(model.chat_markup().think_end) {}
    Constraints(const Constraints&) = delete;
    Constraints& operator=(const Constraints&) = delete;

    // Throw minim::Exception.
    Constraint of_rule(const TextRule& rule, Preamble preamble);
    // `optional`: the answer may also be text; once the model begins a call, the call must fit the tools.
    Constraint of_tools(const std::string& tools, const std::string& name, bool single, Preamble preamble,
                        bool optional);

  private:
    minim::ConstraintOptions options_of(Preamble preamble) const;
    Constraint find_or_make(const std::string& key, const std::function<minim::Constraint()>& make);
    void drop(const std::string& key);

    const minim::Model& model_;
    const std::string think_end_;  // the token that ends reasoning
    std::mutex mutex_;             // protects what follows; nobody compiles under it
    Recent<std::shared_future<Constraint>> made_{size_t{32} << 20, 64};
};

}  // namespace server
