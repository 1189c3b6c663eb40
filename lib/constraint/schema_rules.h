// SPDX-License-Identifier: Apache-2.0
// The rules of a grammar for schemas within a schema: equal schemas share one.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "constraint/grammar.h"

namespace minim::constraint {

class SchemaRules {
  public:
    // Returns a call of the rule of a schema. Throws unsupported, naming `where`, if there are too many.
    Part call(Grammar& grammar, const json::Value& schema, const std::string& where);

    // Defines the rules that were called as `part_of(schema, where)`, which may call further ones.
    template <typename PartOf>
    void define_all(Grammar& grammar, const PartOf& part_of) {
        while (!undefined_.empty()) {
            const Undefined next = std::move(undefined_.back());
            undefined_.pop_back();
            grammar.define(next.rule, part_of(next.schema, next.where));
        }
    }

    // Forgets all rules, also those that were not defined because of an error.
    void clear() noexcept {
        rules_.clear();
        undefined_.clear();
    }

  private:
    // Rules that are still to be defined. They are not on the call stack, because chains of references may be long.
    struct Undefined {
        RuleId rule;
        json::Value schema;
        std::string where;
    };
    std::map<std::string, RuleId> rules_;  // by the schema's text
    std::vector<Undefined> undefined_;
};

}  // namespace minim::constraint
