// SPDX-License-Identifier: Apache-2.0
// Fields of a JSON object, read strictly: a value of another type or out of range is an ApiError that names the field; null is
// an absent field.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "json.h"

namespace server {

class Fields {
  public:
    // `path` is put before the names in errors: "messages[0]". The object must outlive this.
    explicit Fields(const Json& object, std::string path = {});

    const Json* find(const char* name) const;  // nullptr if absent or null
    bool has(const char* name) const { return find(name) != nullptr; }

    std::optional<bool> boolean(const char* name) const;
    std::optional<int64_t> integer(const char* name, int64_t minimum = std::numeric_limits<int64_t>::min(),
                                   int64_t maximum = std::numeric_limits<int64_t>::max()) const;
    std::optional<double> number(const char* name, double minimum, double maximum) const;
    std::optional<std::string> text(const char* name) const;
    std::optional<std::string> one_of(const char* name, std::initializer_list<std::string_view> values) const;
    const Json* object(const char* name) const;
    const Json* array(const char* name) const;
    // Without which the request is refused.
    std::string required_text(const char* name) const;
    const Json& required_array(const char* name) const;

    // The field's place in the request.
    std::string place(const char* name) const;
    [[noreturn]] void refuse(const char* name, const std::string& why) const;

  private:
    const Json& object_;
    std::string path_;
};

// "text", "number": for messages.
const char* kind_of(const Json& value);

}  // namespace server
