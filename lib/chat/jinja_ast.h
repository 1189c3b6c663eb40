// SPDX-License-Identifier: Apache-2.0
// A parsed chat template.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "chat/jinja_value.h"

namespace minim::chat::jinja {

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

enum class ExprKind : uint8_t {
    literal,
    name,
    list,         // items
    tuple,        // items
    dict,         // items: a key, its value, the next key ...
    attribute,    // items[0].name
    subscript,    // items[0][items[1]]
    slice,        // items[0][items[1]:items[2]:items[3]]; each but the first may be nullptr
    call,         // items[0](items[1]..., name=value)
    filter,       // items[0] | name(items[1]..., name=value)
    test,         // items[0] is name(items[1]...)
    negate,       // -items[0]
    plus,         // +items[0]
    logical_not,  // items[0]
    logical_and,  // of all items
    logical_or,   // of all items
    concat,       // ~ of all items
    arithmetic,   // items[0] name items[1]
    comparison,   // items[0] operators[0] items[1] operators[1] items[2]...
    conditional,  // items[1] if items[0] else items[2], which may be nullptr
};

struct Expr {
    ExprKind kind;
    size_t line;
    std::string name;
    Value literal = {};
    std::vector<ExprPtr> items = {};
    std::vector<std::string> operators = {};
    std::vector<std::pair<std::string, ExprPtr>> keywords = {};
    size_t depth = 1;  // of the tree below
};

// The target that a value is bound to: a name, an attribute of a namespace, or a tuple of targets.
struct Target {
    std::string name;
    std::string attribute;  // "": the name itself
    std::vector<Target> parts;
};

struct Statement;
using Block = std::vector<Statement>;

enum class StatementKind : uint8_t {
    data,          // prints `text`
    print,         // prints expr
    set,           // target = expr
    set_block,     // target = what body prints
    conditional,   // the body of the first branch whose condition holds
    loop,          // for target in expr if condition: body, else other
    macro,         // defines `text`
    pass_through,  // prints body
    leave,         // break
    next,          // continue
};

struct Branch {
    ExprPtr condition;  // nullptr: else
    Block body;
};

struct Statement {
    StatementKind kind;
    size_t line;
    std::string text = {};
    ExprPtr expr = {};
    ExprPtr condition = {};
    Target target = {};
    Block body = {};
    Block other = {};
    std::vector<Branch> branches = {};
    std::shared_ptr<const Macro> macro = {};
};

struct Macro {
    std::string name;
    std::vector<std::string> parameters;
    std::vector<ExprPtr> defaults;  // of the last parameters
    Block body;
};

}  // namespace minim::chat::jinja
