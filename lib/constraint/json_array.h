// SPDX-License-Identifier: Apache-2.0
// Converts the arrays of a schema to a grammar, for JSON and for the elements of tool calls.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/json.h"
#include "constraint/json_text.h"

namespace minim::constraint {

class JsonSchema;

// The form of an array and its items.
struct ItemWriting {
    std::function<Part(const json::Value& schema, const std::string& where)> item;
    std::function<Part()> any_item;
    std::function<Part(const json::Value& value)> literal;  // an item of one value
    std::function<Part(Part item, int64_t least, int64_t most)>
        repeated;                           // the whole array of items of one form
    std::function<Part(Part items)> whole;  // the array of these items
    Part separator;
};

// Returns the arrays that a flat schema for arrays accepts, in a form.
Part item_list(JsonSchema& json, Grammar& grammar, const json::Value& flat, const std::string& where,
               const ItemWriting& writing);

// Returns the JSON arrays that a flat schema for arrays accepts.
Part json_array(JsonSchema& json, JsonText& text, const json::Value& flat, const std::string& where);

}  // namespace minim::constraint
