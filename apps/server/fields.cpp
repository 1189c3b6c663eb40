// SPDX-License-Identifier: Apache-2.0
#include "fields.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "error.h"

namespace server {

Fields::Fields(const Json& object, std::string path) : object_(object), path_(std::move(path)) {
    if (!object_.is_object())
        throw ApiError{400, fmt::format("{} must be an object, not {}", path_, kind_of(object_)), path_, ""};
}

const Json* Fields::find(const char* name) const {
    if (path_.empty()) read_.insert(name);
    const auto it = object_.find(name);
    return it == object_.end() || it->is_null() ? nullptr : &*it;
}

std::string Fields::place(const char* name) const {
    return path_.empty() ? name : path_ + "." + name;
}

void Fields::refuse(const char* name, const std::string& why) const {
    throw ApiError{400, place(name) + " " + why, place(name), ""};
}

std::optional<bool> Fields::boolean(const char* name) const {
    const Json* value = find(name);
    if (value == nullptr) return std::nullopt;
    if (!value->is_boolean()) refuse(name, fmt::format("must be true or false, not {}", kind_of(*value)));
    return value->get<bool>();
}

std::optional<int64_t> Fields::integer(const char* name, int64_t minimum, int64_t maximum) const {
    const Json* value = find(name);
    if (value == nullptr) return std::nullopt;
    if (value->is_number_float()) {  // some languages write 40 as 40.0
        constexpr double k_exact = 9007199254740992;
        const auto number = value->get<double>();
        if (std::trunc(number) != number || std::abs(number) > k_exact)
            refuse(name, fmt::format("is {}; it must be an integer", value->dump()));
        if (number < static_cast<double>(minimum) || number > static_cast<double>(maximum))
            refuse(name, fmt::format("is {}; it must be from {} to {}", value->dump(), minimum, maximum));
        return static_cast<int64_t>(number);
    }
    if (!value->is_number_integer()) refuse(name, fmt::format("must be an integer, not {}", kind_of(*value)));
    const bool is_beyond =
        value->is_number_unsigned() &&
        value->get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
    const int64_t number = is_beyond ? std::numeric_limits<int64_t>::max() : value->get<int64_t>();
    if (is_beyond || number < minimum || number > maximum) {
        if (maximum == std::numeric_limits<int64_t>::max())
            refuse(name, fmt::format("is {}; it must be at least {}", value->dump(), minimum));
        refuse(name, fmt::format("is {}; it must be from {} to {}", value->dump(), minimum, maximum));
    }
    return number;
}

std::optional<double> Fields::number(const char* name, double minimum, double maximum) const {
    const Json* value = find(name);
    if (value == nullptr) return std::nullopt;
    if (!value->is_number()) refuse(name, fmt::format("must be a number, not {}", kind_of(*value)));
    const auto number = value->get<double>();
    if (!(number >= minimum && number <= maximum))
        refuse(name, fmt::format("is {}; it must be from {} to {}", value->dump(), minimum, maximum));
    return number;
}

std::optional<std::string> Fields::text(const char* name) const {
    const Json* value = find(name);
    if (value == nullptr) return std::nullopt;
    if (!value->is_string()) refuse(name, fmt::format("must be a string, not {}", kind_of(*value)));
    return value->get<std::string>();
}

std::optional<std::string> Fields::one_of(const char* name,
                                          std::initializer_list<std::string_view> values) const {
    const auto value = text(name);
    if (!value || std::find(values.begin(), values.end(), *value) != values.end()) return value;
    refuse(name, fmt::format("must be one of {}", fmt::join(values, ", ")));
}

const Json* Fields::object(const char* name) const {
    const Json* value = find(name);
    if (value != nullptr && !value->is_object())
        refuse(name, fmt::format("must be an object, not {}", kind_of(*value)));
    return value;
}

const Json* Fields::array(const char* name) const {
    const Json* value = find(name);
    if (value != nullptr && !value->is_array())
        refuse(name, fmt::format("must be an array, not {}", kind_of(*value)));
    return value;
}

std::string Fields::required_text(const char* name) const {
    auto value = text(name);
    if (!value) refuse(name, "is required");
    return std::move(*value);
}

const Json& Fields::required_array(const char* name) const {
    const Json* value = array(name);
    if (value == nullptr) refuse(name, "is required");
    return *value;
}

const char* kind_of(const Json& value) {
    switch (value.type()) {
        case Json::value_t::null:
            return "null";
        case Json::value_t::boolean:
            return "a boolean";
        case Json::value_t::string:
            return "a string";
        case Json::value_t::array:
            return "an array";
        case Json::value_t::object:
            return "an object";
        default:
            return "a number";
    }
}

}  // namespace server
