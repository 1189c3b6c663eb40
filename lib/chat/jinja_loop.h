// SPDX-License-Identifier: Apache-2.0
// The variable `loop` of a for statement.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "chat/jinja_builtins.h"
#include "chat/jinja_value.h"

namespace minim::chat::jinja {

struct Loop {
    std::vector<Value> items;
    mutable size_t index = 0;
    mutable Value last_changed;  // for changed()
    mutable bool has_changed_before = false;
};

Value loop_value(std::shared_ptr<const Loop> loop);
// Returns an attribute of `loop`; undefined for unknown names.
Value loop_attribute(const Value& loop, std::string_view name);

}  // namespace minim::chat::jinja
