// A JSON Schema with its references resolved and its combinations worked out: what json_schema.h writes as
// grammar are flat schemas, which hold none of $ref, allOf, anyOf and oneOf.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace minim::constraint {

class SchemaDocument {
  public:
    // `root` must outlive it.
    explicit SchemaDocument(const json::Value& root) : root_(root) {}

    // Flat schemas of which a value must fit one to fit `schema`; none where nothing fits. They hold only
    // keywords that restrict a value. oneOf counts as anyOf. Throws invalid for what is no schema and
    // unsupported for a keyword that cannot be enforced; `where` is the schema's place, for messages.
    std::vector<json::Value> alternatives(const json::Value& schema, const std::string& where) const {
        return expand(schema, where, 0);
    }

    const json::Value& root() const noexcept { return root_; }

  private:
    std::vector<json::Value> expand(const json::Value& schema, const std::string& where, int depth) const;
    const json::Value& target_of(const json::Value& reference, const std::string& where) const;

    const json::Value& root_;
};

// The schema true or false.
json::Value boolean_schema(bool value);
json::Value object_value();
json::Value array_value();
json::Value string_value(std::string_view text);
void set(json::Value& object, std::string_view key, json::Value value);

}  // namespace minim::constraint
