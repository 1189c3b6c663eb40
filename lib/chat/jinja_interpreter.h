// SPDX-License-Identifier: Apache-2.0
// Runs a parsed chat template. Its work is bounded in steps, recursion and size of texts.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "chat/jinja_ast.h"
#include "chat/jinja_builtins.h"
#include "chat/jinja_parser.h"

namespace minim::chat::jinja {

using Variables = std::vector<std::pair<std::string, Value>>;

// Returns what the template prints. Throws Status::invalid if the template raises an exception or fails,
// Status::unsupported for features that are not supported. `steps`: see Meter.
MarkedText run(const ParsedTemplate& parsed, Variables variables, uint64_t steps);

// a + b and so on.
Value arithmetic(std::string_view symbol, const Value& a, const Value& b, Meter& meter);
Value negated(const Value& value);

}  // namespace minim::chat::jinja
