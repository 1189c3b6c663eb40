// SPDX-License-Identifier: Apache-2.0
#include "constraint/relaxed_schema.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/format_text.h"
#include "constraint/schema_values.h"

namespace minim::constraint {
namespace {

using json::Value;

constexpr size_t k_max_failures = 64;  // failed attempts; after these, keywords are dropped in groups

// Keywords that may be left out, with all that is in them. The schema without them allows more.
constexpr auto k_droppable = std::to_array<std::string_view>({"$ref",
                                                              "$dynamicRef",
                                                              "$recursiveRef",
                                                              "not",
                                                              "if",
                                                              "pattern",
                                                              "format",
                                                              "multipleOf",
                                                              "uniqueItems",
                                                              "contains",
                                                              "minContains",
                                                              "maxContains",
                                                              "patternProperties",
                                                              "propertyNames",
                                                              "unevaluatedProperties",
                                                              "dependencies",
                                                              "dependentRequired",
                                                              "dependentSchemas",
                                                              "minItems",
                                                              "unevaluatedItems",
                                                              "maxItems",
                                                              "minLength",
                                                              "maxLength",
                                                              "minProperties",
                                                              "maxProperties",
                                                              "minimum",
                                                              "maximum",
                                                              "exclusiveMinimum",
                                                              "exclusiveMaximum"});
// Keywords that hold a schema or a list of schemas, and those that hold schemas by name.
constexpr auto k_schemas = std::to_array<std::string_view>(
    {"items", "prefixItems", "anyOf", "oneOf", "allOf", "additionalProperties"});
constexpr auto k_maps = std::to_array<std::string_view>({"properties", "$defs", "definitions"});

template <size_t n>
bool is_among(const std::array<std::string_view, n>& names, std::string_view name) {
    return std::ranges::find(names, name) != names.end();
}

class Relaxer {
  public:
    Relaxer(const Value& schema, const std::function<void(const Value&)>& compile, const std::string& where)
        : schema_(schema), compile_(compile) {
        number_of_keywords(schema_, where);
        is_kept_.assign(places_.size(), false);
    }

    // Returns the relaxed schema; nothing if the schema cannot be enforced even with all droppable keywords left out.
    std::optional<Value> relaxed() {
        if (failure(kept())) return std::nullopt;
        if (!places_.empty()) keep(0, places_.size());
        return kept();
    }

    std::vector<std::string> take_notes() { return std::move(notes_); }

  private:
    // Numbers the droppable keywords in the order in which copy() meets them.
    void number_of_keywords(const Value& schema, const std::string& where) {
        for (size_t i = 0; i < schema.keys.size(); ++i) {
            const std::string& key = schema.keys[i];
            const std::string place = where + "/" + key;
            if (is_among(k_droppable, key)) {
                places_.push_back(place);
            } else if (is_among(k_schemas, key) && schema.items[i].is_array()) {
                for (const Value& each : schema.items[i].items) number_of_keywords(each, place);
            } else if (is_among(k_schemas, key)) {
                number_of_keywords(schema.items[i], place);
            } else if (is_among(k_maps, key)) {
                for (size_t j = 0; j < schema.items[i].keys.size(); ++j)
                    number_of_keywords(schema.items[i].items[j], place + "/" + schema.items[i].keys[j]);
            }
        }
    }

    // Returns the schema with the droppable keywords that are kept. Also leaves out keywords that would allow less
    // without those: additionalProperties without patternProperties, contains without minContains, and unevaluated...
    // if any keyword is left out. A oneOf in which a keyword is left out becomes anyOf.
    Value copy(const Value& schema, size_t& number) const {
        if (!schema.is_object()) return schema;
        const size_t first = number;
        Value copied = object_value();
        std::vector<std::string_view> left_out;
        for (size_t i = 0; i < schema.keys.size(); ++i) {
            const std::string& key = schema.keys[i];
            Value value = schema.items[i];
            const size_t first_inside = number;
            if (is_among(k_droppable, key)) {
                if (!is_kept_[number++]) {
                    left_out.push_back(key);
                    continue;
                }
            } else if (is_among(k_schemas, key) && value.is_array()) {
                for (Value& each : value.items) each = copy(each, number);
            } else if (is_among(k_schemas, key)) {
                value = copy(value, number);
            } else if (is_among(k_maps, key)) {
                for (size_t j = 0; j < value.keys.size(); ++j) value.items[j] = copy(value.items[j], number);
            }
            if (key == "oneOf" && !all_kept(first_inside, number)) {
                if (json::find(&schema, "anyOf") == nullptr) set(copied, "anyOf", std::move(value));
                continue;
            }
            set(copied, key, std::move(value));
        }
        for (const std::string_view key : left_out) {
            if (key == "patternProperties") erase(copied, "additionalProperties");
            if (key == "minContains") erase(copied, "contains");
        }
        if (!all_kept(first, number)) {
            erase(copied, "unevaluatedProperties");
            erase(copied, "unevaluatedItems");
        }
        return copied;
    }
    bool all_kept(size_t first, size_t last) const {
        for (size_t i = first; i < last; ++i)
            if (!is_kept_[i]) return false;
        return true;
    }
    static void erase(Value& object, std::string_view key) {
        const auto found = std::ranges::find(object.keys, key);
        if (found == object.keys.end()) return;
        object.items.erase(object.items.begin() + (found - object.keys.begin()));
        object.keys.erase(found);
    }
    Value kept() const {
        size_t number = 0;
        return copy(schema_, number);
    }

    // Returns why the schema cannot be enforced; nothing if it can.
    std::optional<std::string> failure(const Value& schema) const {
        try {
            compile_(schema);
        } catch (const Error& error) {
            if (error.status() != Status::unsupported) throw;
            return error.what();
        }
        return std::nullopt;
    }

    // Keeps those keywords from `first` to before `last` that can be enforced. Halves the range if not all can be kept
    // together.
    void keep(size_t first, size_t last) {
        const auto mark = [&](bool is_kept) {
            for (size_t i = first; i < last; ++i) is_kept_[i] = is_kept;
        };
        mark(true);
        const std::optional<std::string> why = failure(kept());
        if (!why) return;
        mark(false);
        if (last - first > 1 && n_failures_++ < k_max_failures) {
            const size_t middle = first + (last - first) / 2;
            keep(first, middle);
            keep(middle, last);
            return;
        }
        for (size_t i = first; i < last; ++i)
            notes_.push_back(format_text("{} is left out: {}", places_[i], *why));
    }

    const Value& schema_;
    const std::function<void(const Value&)>& compile_;
    std::vector<std::string> places_;  // of the droppable keywords
    std::vector<bool> is_kept_;
    std::vector<std::string> notes_;
    size_t n_failures_ = 0;
};

}  // namespace

std::vector<std::string> relax(Value& schema, const std::function<void(const Value&)>& compile,
                               const std::string& where) {
    std::string why;
    try {
        compile(schema);
        return {};
    } catch (const Error& error) {
        if (error.status() != Status::unsupported) throw;
        why = error.what();
    }
    Relaxer relaxer(schema, compile, where);
    if (std::optional<Value> relaxed = relaxer.relaxed()) {
        schema = *std::move(relaxed);
        return relaxer.take_notes();
    }
    schema = boolean_schema(true);
    return {format_text("{} is left out as a whole: {}", where, why)};
}

}  // namespace minim::constraint
