// SPDX-License-Identifier: Apache-2.0
// Reads the arguments of a filter, test, method or function, as Python binds them to parameters.
#pragma once

#include <initializer_list>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "chat/jinja_builtins.h"

namespace minim::chat::jinja {

class Parameters {
  public:
    // `names` are those of all parameters, in order. Throws Status::invalid for arguments that fit none of them.
    Parameters(std::string_view function, const Arguments& arguments,
               std::initializer_list<std::string_view> names)
        : function_(function), names_(names), values_(names.size(), nullptr) {
        if (arguments.positional.size() > names.size())
            fail(Status::invalid, "{}() takes at most {} arguments, {} are given", function, names.size(),
                 arguments.positional.size());
        for (size_t i = 0; i < arguments.positional.size(); ++i) values_[i] = &arguments.positional[i];
        for (const auto& [name, value] : arguments.keywords) {
            size_t index = 0;
            while (index < names_.size() && names_[index] != name) ++index;
            if (index == names_.size()) fail(Status::invalid, "{}() has no argument '{}'", function, name);
            values_[index] = &value;
        }
    }

    // Returns an argument; nullptr if it is not given.
    const Value* get(size_t index) const { return values_[index]; }
    const Value& require(size_t index) const {
        if (values_[index] == nullptr)
            fail(Status::invalid, "{}() needs the argument '{}'", function_, names_[index]);
        return *values_[index];
    }
    bool flag(size_t index, bool otherwise) const {
        return values_[index] == nullptr ? otherwise : is_true(*values_[index]);
    }
    int64_t whole(size_t index, int64_t otherwise) const {
        if (values_[index] == nullptr) return otherwise;
        const Value& value = *values_[index];
        if (value.is(Kind::boolean)) return value.boolean ? 1 : 0;
        if (!value.is(Kind::integer))
            fail(Status::invalid, "{}(): '{}' is a {}, not an int", function_, names_[index],
                 type_name(value));
        return value.integer;
    }
    // Returns an argument that is a text; nullptr if it is missing or None.
    const MarkedText* text(size_t index) const {
        const Value* value = values_[index];
        if (value == nullptr || value->is(Kind::none)) return nullptr;
        if (!value->is(Kind::text))
            fail(Status::invalid, "{}(): '{}' is a {}, not a str", function_, names_[index],
                 type_name(*value));
        return &value->text();
    }

  private:
    std::string_view function_;
    std::vector<std::string_view> names_;
    std::vector<const Value*> values_;
};

}  // namespace minim::chat::jinja
