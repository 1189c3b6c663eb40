// A JSON Schema with its references resolved and its combinations worked out: what json_schema.h writes as
// grammar are flat schemas, which hold none of $ref, allOf, anyOf and oneOf.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace minim::constraint {

// What the schemas of one request have taken: bounded, as requests come from anybody.
struct SchemaWork {
    size_t n_members = 0;  // of schemas, looked at
    size_t n_reached = 0;  // Automaton::n_reached of automata made on the way
};

class SchemaDocument {
  public:
    // Both must outlive it.
    SchemaDocument(const json::Value& root, SchemaWork& work) : root_(root), work_(work) {}

    // Flat schemas of which a value must fit one to fit `schema`; none where nothing fits. They hold only
    // keywords that restrict a value. oneOf counts as anyOf. Throws invalid for what is no schema and
    // unsupported for a keyword that cannot be enforced, or where too much is to be put together; `where` is the schema's place,
    // for messages.
    std::vector<json::Value> alternatives(const json::Value& schema, const std::string& where) const {
        return expand(schema, where, 0);
    }

    const json::Value& root() const noexcept { return root_; }
    SchemaWork& work() const noexcept { return work_; }

  private:
    std::vector<json::Value> expand(const json::Value& schema, const std::string& where, int depth) const;
    std::vector<json::Value> merge_each(const std::vector<json::Value>& some,
                                        const std::vector<json::Value>& others,
                                        const std::string& where) const;
    const json::Value& target_of(const json::Value& reference, const std::string& where) const;
    void count_members(size_t n, const std::string& where) const;

    const json::Value& root_;
    SchemaWork& work_;
};

// The schema true or false.
json::Value boolean_schema(bool value);
json::Value object_value();
json::Value array_value();
json::Value string_value(std::string_view text);
void set(json::Value& object, std::string_view key, json::Value value);

}  // namespace minim::constraint
