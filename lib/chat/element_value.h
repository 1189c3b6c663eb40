// SPDX-License-Identifier: Apache-2.0
// Converts elements of a call of a MiniMax-M3 model to JSON values, by the schema of the tool.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "chat/argument_value.h"

namespace minim::chat {

// <NAME> text and elements </NAME>.
struct Element {
    std::string name;
    std::string text;  // all text in it, also between its elements
    std::vector<Element> elements;
};

// Returns whether a text is empty or whitespace.
bool is_blank(std::string_view text) noexcept;

// Returns whether elements make a list rather than an object, as far as the schema decides it; else all of them must have the
// name "item".
bool is_list_only(TypeSet types) noexcept;
bool is_object_only(TypeSet types) noexcept;

// Appends the JSON value of an element. Never fails: what fits no kind becomes a string, a list or an object.
void append_element(std::string& out, const Element& element, const ValueSchema& schema);
// Appends elements as a list. `schema`: of the list.
void append_elements(std::string& out, const std::vector<Element>& items, const ValueSchema& schema);

}  // namespace minim::chat
