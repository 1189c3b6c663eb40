// SPDX-License-Identifier: Apache-2.0
// Converts JSON Schema to a grammar of JSON texts that the schema accepts. The grammar may be narrower than the schema, never
// wider:
// - members of objects come in the order of `properties`; further ones only if additionalProperties, patternProperties
//   or unevaluatedProperties asks for them, if minProperties does, or if nothing names any;
// - likewise for items beyond `prefixItems`;
// - keywords for one type require that type;
// - numbers with `multipleOf` have no exponent, and those with bounds have an exponent only after one digit and a point.
// A keyword that cannot be enforced is an error that names it. Annotations and unknown keywords are ignored, as in
// the standard. oneOf is treated as anyOf if the overlap of its members cannot be computed.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "constraint/json_text.h"
#include "constraint/schema_document.h"
#include "constraint/schema_rules.h"
#include "constraint/text_automaton.h"

namespace minim::constraint {

class JsonSchema {
  public:
    // All must outlive it.
    JsonSchema(JsonText& text, const json::Value& schema, SchemaWork& work)
        : text_(text), grammar_(text.grammar()), document_(schema, work) {}

    // Returns the grammar of a value that fits `schema`, a part of document().root() or composed of such parts;
    // `where` is its place. finish() defines the rule that it calls.
    Part value(const json::Value& schema, const std::string& where);

    // Defines all rules that are called. Throws what SchemaDocument::alternatives does.
    void finish();

    SchemaDocument& document() noexcept { return document_; }

    // For an alternative of the document that lists no values: return the types that it allows (inferred from its other
    // keywords if it names none), and its values of one type.
    static std::vector<std::string> types_of(const json::Value& flat);
    Part of_type(std::string_view type, const json::Value& flat, const std::string& where);

    // Returns the texts of the strings that such an alternative allows, of any length; nothing if it allows all.
    std::optional<TextAutomaton> string_texts(const json::Value& flat, const std::string& where);
    // Returns those of the texts, in this spelling, that have the length which the alternative requires.
    Part part_of_length(const TextAutomaton& texts, const json::Value& flat, const Spelling& spelling,
                        const std::string& where);
    // Returns the strings that fit a schema.
    TextAutomaton strings_of(const json::Value& schema, const std::string& where);

  private:
    Part flat(const json::Value& flat, const std::string& where);
    Part number(const json::Value& flat, bool is_integer, const std::string& where);
    Part string(const json::Value& flat, const std::string& where);
    TextAutomaton texts_with_length(const json::Value& flat, const std::string& where);
    Part array(const json::Value& flat, const std::string& where);
    Part object(const json::Value& flat, const std::string& where);

    JsonText& text_;
    Grammar& grammar_;
    SchemaDocument document_;
    SchemaRules rules_;
};

// Returns whether a flat schema allows every value.
bool allows_any(const json::Value& flat);

// Returns a flat schema whose counts exclude the arrays or objects that it excludes as values. Throws unsupported for one that is
// not empty.
json::Value without_excluded(const json::Value& flat, json::Value::Kind kind, const std::string& where);

// Returns the count that a keyword of a flat schema gives. Throws unsupported if it is too large to enforce.
int64_t count_in(const json::Value& flat, const char* key, int64_t otherwise, const std::string& where,
                 int64_t limit = k_max_repeats);

// Returns the grammar of the values that fit the schema.
Grammar grammar_of_schema(const json::Value& schema);

}  // namespace minim::constraint
