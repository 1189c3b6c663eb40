// SPDX-License-Identifier: Apache-2.0
// A JSON Schema with its references resolved and its combinations expanded to flat schemas (flat_schema.h), which
// json_schema.h converts to a grammar.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/json.h"
#include "constraint/schema_check.h"
#include "constraint/schema_work.h"

namespace minim::constraint {

class SchemaDocument {
  public:
    // `work` must outlive it.
    SchemaDocument(const json::Value& root, SchemaWork& work);
    SchemaDocument(const SchemaDocument&) = delete;
    SchemaDocument& operator=(const SchemaDocument&) = delete;

    // Returns flat schemas: a value fits `schema`, a part of root(), if it fits one of them; none if nothing fits.
    // Throws invalid for a bad schema, and unsupported for a keyword that cannot be enforced or for too many
    // combinations; `where` is the place of the schema, for messages. oneOf is treated as anyOf if the overlap of its
    // members cannot be computed.
    std::vector<json::Value> alternatives(const json::Value& schema, const std::string& where);

    const json::Value& root() const noexcept { return root_; }
    SchemaWork& work() const noexcept { return work_; }
    SchemaCheck& check() noexcept { return check_; }

  private:
    using Alternatives = std::vector<json::Value>;

    Alternatives expand(const json::Value& schema, const std::string& where, int depth);
    Alternatives expand_all(const std::vector<json::Value>& schemas, const std::string& where, int depth);
    Alternatives any_of(const json::Value& members, const std::string& where, int depth);
    Alternatives one_of(const json::Value& members, const std::string& where, int depth);
    Alternatives conditional(const json::Value& schema, const std::string& where, int depth);
    void add_dependent(const json::Value& schema, Alternatives& results, const std::string& where, int depth);

    // Return the alternatives of the values that do not fit `schema`.
    Alternatives negated(const json::Value& schema, const std::string& where, int depth);
    Alternatives negated_combinations(const json::Value& schema, const std::string& where, int depth);

    Alternatives merge_each(const Alternatives& some, const Alternatives& others, const std::string& where);
    bool are_disjoint(const json::Value& a, const json::Value& b, const std::string& where, int depth);
    void require_depth(int depth, const std::string& where) const;

    json::Value root_;
    SchemaWork& work_;
    SchemaCheck check_;
    bool tracks_seen_;
};

}  // namespace minim::constraint
