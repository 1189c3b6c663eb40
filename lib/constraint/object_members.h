// SPDX-License-Identifier: Apache-2.0
// The members of an object as grammar, for JSON and for the parameters of tool calls.
#pragma once

#include <functional>
#include <string>

#include "base/json.h"
#include "constraint/grammar.h"
#include "constraint/text_automaton.h"

namespace minim::constraint {

class JsonSchema;

// The form of one member.
struct MemberWriting {
    std::function<Part(const std::string& name, const json::Value& schema)> named;
    // Returns a member whose name is any of `names`; nullptr: any name.
    std::function<Part(const TextAutomaton* names, const json::Value& schema, const std::string& where)>
        further;
    Part separator;
    bool empty_properties_close;  // "properties": {} allows no members
};

// Returns the members that a flat schema for objects accepts: named ones in their order, then further ones.
Part member_list(JsonSchema& json, Grammar& grammar, const json::Value& flat, const std::string& where,
                 const MemberWriting& writing);

}  // namespace minim::constraint
