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

  private:
    const json::Value* find(std::string_view name) const noexcept;

    json::Value tools_;
    std::vector<const json::Value*> functions_;  // point into tools_
};

// Appends the JSON value of `text` to `out`. Never fails: a text that fits no kind becomes a string.
void append_argument(std::string& out, std::string_view text, TypeSet types);

}  // namespace minim::chat
