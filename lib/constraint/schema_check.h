// SPDX-License-Identifier: Apache-2.0
// Decides whether a JSON value fits a schema, as in the standard: for the values of `enum` and `const`, and for names.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/json.h"
#include "constraint/schema_work.h"
#include "constraint/text_automaton.h"

namespace minim::constraint {

class SchemaCheck {
  public:
    // Both must outlive it. References are those of with_local_references().
    SchemaCheck(const json::Value& root, SchemaWork& work) : root_(root), work_(work) {}

    // Throws invalid if `schema` is not a schema, and unsupported if it has an unknown keyword or takes too much work.
    // `where` is the schema's place, for messages.
    bool fits(const json::Value& value, const json::Value& schema, const std::string& where) {
        Seen seen(value.items.size(), false);
        return fits(value, schema, where, seen, 0);
    }

    // Returns the automaton of an expression. Each expression is compiled once.
    const TextAutomaton& pattern(const std::string& text, const std::string& where);

  private:
    // Members or items that some keyword has looked at.
    using Seen = std::vector<bool>;

    bool fits(const json::Value& value, const json::Value& schema, const std::string& where, Seen& seen,
              int depth);
    bool fits_alone(const json::Value& value, const json::Value& schema, const std::string& where, int depth);
    bool fits_keyword(const json::Value& value, const std::string& key, const json::Value& keyword,
                      const std::string& where);
    bool fits_combinations(const json::Value& value, const json::Value& schema, const std::string& where,
                           Seen& seen, int depth);
    bool fits_object(const json::Value& value, const json::Value& schema, const std::string& where,
                     Seen& seen, int depth);
    bool fits_array(const json::Value& value, const json::Value& schema, const std::string& where, Seen& seen,
                    int depth);

    const json::Value& root_;
    SchemaWork& work_;
    std::map<std::string, TextAutomaton> patterns_;
};

// Returns the schema that a reference points to; with_local_references() has made the reference. Throws unsupported for
// a reference to another document, and invalid for one without a target.
const json::Value& target_of(const json::Value& root, const json::Value& reference, const std::string& where);

bool is_of_type(const json::Value& value, const json::Value& type);

}  // namespace minim::constraint
