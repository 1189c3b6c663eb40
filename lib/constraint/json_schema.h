// JSON Schema as grammar, so that an answer kept to it is a JSON text that the schema accepts. The grammar
// may be narrower than the schema, never wider:
// - members of objects come in the order of `properties`; further ones only where additionalProperties asks
//   for them, or where nothing names any;
// - likewise for items beyond `prefixItems`;
// - numbers have at most 18 digits on either side of the point.
// A keyword that cannot be enforced is an error that names it; annotations and unknown keywords are ignored,
// as the standard says, and oneOf counts as anyOf.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "constraint/json_text.h"
#include "constraint/regex.h"
#include "constraint/schema_document.h"

namespace minim::constraint {

class JsonSchema {
  public:
    // All must outlive it.
    JsonSchema(JsonText& text, const json::Value& schema, SchemaWork& work)
        : text_(text), grammar_(text.grammar()), document_(schema, work) {}

    // A value that fits `schema`, which is a part of the document or of this form; `where` is its place in
    // it. The rule it calls is defined by finish().
    Part value(const json::Value& schema, const std::string& where);

    // Defines all rules that are called. Throws what SchemaDocument::alternatives does.
    void finish();

    const SchemaDocument& document() const noexcept { return document_; }

    // Of one of the document's alternatives: the types it allows, guessed from its other keywords where it
    // names none, and its values of one type.
    static std::vector<std::string> types_of(const json::Value& schema);
    Part of_type(std::string_view type, const json::Value& schema, const std::string& where);
    // The values of its `enum` that fit everything else. Throws unsupported where that takes too much.
    std::vector<const json::Value*> listed_values(const json::Value& schema, const std::string& where) const;

    // Characters as the schema's pattern, format and lengths say. `any` is one character of any text.
    Part string_inside(const json::Value& schema, const std::string& where, const Spelling& spelling,
                       Part any);

  private:
    Part flat(const json::Value& schema, const std::string& where);
    Part number(const json::Value& schema, bool is_integer, const std::string& where);
    Part string(const json::Value& schema, const std::string& where);
    Part array(const json::Value& schema, const std::string& where);
    Part object(const json::Value& schema, const std::string& where);
    Part free_object(const json::Value& schema, const std::string& where);
    Part key_other_than(const std::vector<std::string>& names, const std::string& where);

    JsonText& text_;
    Grammar& grammar_;
    SchemaDocument document_;
    std::map<std::string, RuleId> rules_;  // by the schema's text
    // Not on the stack: references may lead from schema to schema without end in sight.
    struct Undefined {
        RuleId rule;
        json::Value schema;
        std::string where;
    };
    std::vector<Undefined> undefined_;
};

// Any value that fits the schema.
Grammar grammar_of_schema(const json::Value& schema);

}  // namespace minim::constraint
