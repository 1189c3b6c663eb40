// A JSON Schema with its references resolved and its combinations worked out: what json_schema.h writes as grammar are
// flat schemas (flat_schema.h).
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

    // Flat schemas of which a value must fit one to fit `schema`, a part of root(); none where nothing fits. Throws invalid
    // for what is no schema and unsupported for a keyword that cannot be enforced, or where too much is to be put
    // together; `where` is the schema's place, for messages. oneOf counts as anyOf where its members cannot be told apart.
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

    // What does not fit.
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
