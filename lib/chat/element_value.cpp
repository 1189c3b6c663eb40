// SPDX-License-Identifier: Apache-2.0
#include "chat/element_value.h"

#include <algorithm>
#include <map>
#include <string_view>

#include "base/json.h"
#include "chat/markup.h"

namespace minim::chat {
namespace {

// The member of an object for text that stands beside its elements.
constexpr std::string_view k_text_member = "$text";

void append_text(std::string& out, const std::string& text, TypeSet types) {
    if (types.is_empty()) {
        const bool is_word = text == "true" || text == "false" || text == "null";
        return is_word ? void(out += text) : json::append_quoted(out, text);
    }
    if (is_blank(text) && !types.has(TypeSet::string)) {
        if (types.has(TypeSet::array)) return void(out += "[]");
        if (types.has(TypeSet::object)) return void(out += "{}");
        if (types.has(TypeSet::null)) return void(out += "null");
    }
    append_argument(out, text, types, true);
}

// Appends the value of a member, which is a list if it occurs several times.
void append_member(std::string& out, const std::vector<const Element*>& same, const ValueSchema& schema) {
    if (same.size() == 1) return append_element(out, *same[0], schema);
    const bool is_array = types_in(schema).has(TypeSet::array);
    out += '[';
    for (size_t i = 0; i < same.size(); ++i) {
        if (i > 0) out += ", ";
        append_element(out, *same[i], is_array ? item_schema(schema, i) : schema);
    }
    out += ']';
}

void append_object(std::string& out, const Element& element, const ValueSchema& schema) {
    std::vector<std::vector<const Element*>> members;  // those of one name together, by first occurrence
    std::map<std::string_view, size_t> places;
    for (const Element& member : element.elements) {
        const auto [place, is_new] = places.try_emplace(member.name, members.size());
        if (is_new) members.emplace_back();
        members[place->second].push_back(&member);
    }
    out += '{';
    for (const auto& same : members) {
        if (&same != members.data()) out += ", ";
        json::append_quoted(out, same[0]->name);
        out += ": ";
        append_member(out, same, member_schema(schema, same[0]->name));
    }
    if (!is_blank(element.text)) {
        out += ", ";
        json::append_quoted(out, k_text_member);
        out += ": ";
        json::append_quoted(out, element.text);
    }
    out += '}';
}

}  // namespace

bool is_blank(std::string_view text) noexcept {
    return std::ranges::all_of(text, markup::is_space);
}

bool is_list_only(TypeSet types) noexcept {
    return types.has(TypeSet::array) && !types.has(TypeSet::object);
}

bool is_object_only(TypeSet types) noexcept {
    return types.has(TypeSet::object) && !types.has(TypeSet::array);
}

void append_elements(std::string& out, const std::vector<Element>& items, const ValueSchema& schema) {
    out += '[';
    for (size_t i = 0; i < items.size(); ++i) {
        if (i > 0) out += ", ";
        append_element(out, items[i], item_schema(schema, i));
    }
    out += ']';
}

void append_element(std::string& out, const Element& element, const ValueSchema& schema) {
    const TypeSet types = types_in(schema);
    if (element.elements.empty()) return append_text(out, element.text, types);
    const bool are_items =
        std::ranges::all_of(element.elements, [](const Element& each) { return each.name == k_m3_item; });
    if (is_list_only(types) || (are_items && !is_object_only(types)))
        return append_elements(out, element.elements, schema);
    append_object(out, element, schema);
}

}  // namespace minim::chat
