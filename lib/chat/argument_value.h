// SPDX-License-Identifier: Apache-2.0
// Converts arguments of tool calls from the model's text to JSON values, by the schema of the tool.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace minim::chat {

// The kinds of JSON values that a schema allows.
class TypeSet {
  public:
    enum Bit : uint8_t {
        null = 1,
        boolean = 2,
        integer = 4,
        number = 8,
        string = 16,
        object = 32,
        array = 64
    };

    void add(Bit bit) noexcept { bits_ = static_cast<uint8_t>(bits_ | bit); }
    bool has(Bit bit) const noexcept { return (bits_ & bit) != 0; }
    bool is_empty() const noexcept { return bits_ == 0; }
    bool is_string_only() const noexcept { return bits_ == string; }

  private:
    uint8_t bits_ = 0;
};

// The schema of one value: all that its $ref, anyOf, oneOf and allOf lead to. Without parts nothing is known of the value.
struct ValueSchema {
    const json::Value* root = nullptr;  // the schema of the tool's parameters
    std::vector<const json::Value*> parts;
};

// Returns the kinds that a schema names by `type`, `enum` and `const`; none if it does not say.
TypeSet types_in(const ValueSchema& schema);
// Returns the schema of a member of an object: of `properties`, else of `additionalProperties`.
ValueSchema member_schema(const ValueSchema& object, std::string_view name);
// Returns the schema of an item of an array: of `prefixItems`, else of `items`.
ValueSchema item_schema(const ValueSchema& array, size_t index);

// The tools of a request, by name.
class ToolSet {
  public:
    ToolSet() = default;
    // `tools`: array of {"type": "function", "function": {...}} or of the inner objects; null is none. Throws
    // Status::invalid, naming the element, when it is not, or a tool has no name.
    explicit ToolSet(json::Value tools);
    ToolSet(const ToolSet&) = delete;
    ToolSet& operator=(const ToolSet&) = delete;

    bool is_empty() const noexcept { return functions_.empty(); }
    bool has(std::string_view name) const noexcept { return find(name) != nullptr; }
    // Returns the kinds that the schema allows for a parameter: by `type`, `enum` and `const`, also in anyOf, oneOf,
    // allOf and local $ref. Only string if the schema does not say.
    TypeSet types_of(std::string_view tool, std::string_view parameter) const;
    // Returns the schema of a parameter, of `properties` alone. It points into this object.
    ValueSchema schema_of(std::string_view tool, std::string_view parameter) const;

  private:
    const json::Value* find(std::string_view name) const noexcept;

    json::Value tools_;
    std::vector<const json::Value*> functions_;  // point into tools_
};

// Appends the JSON value of `text` to `out`. Never fails: a text that fits no kind becomes a string. `keeps_newlines`: a string
// among the kinds keeps a newline at its beginning and at its end.
void append_argument(std::string& out, std::string_view text, TypeSet types, bool keeps_newlines = false);

}  // namespace minim::chat
