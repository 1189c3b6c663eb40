// SPDX-License-Identifier: Apache-2.0
// Reads the fields of a JSON object strictly. Throws an ApiError that names the field for a value of another type or out of
// range. A field that is null counts as absent.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>

#include "json.h"

namespace server {

class Fields {
  public:
    // `path` is put before the names in errors: "messages[0]". `object` must outlive this reader.
    explicit Fields(const Json& object, std::string path = {});

    const Json* find(const char* name) const;  // nullptr if absent or null
    // Returns whether a field of this name was looked for.
    bool was_read(const std::string& name) const { return read_.contains(name); }
    const Json& object_itself() const { return object_; }
    bool has(const char* name) const { return find(name) != nullptr; }

    std::optional<bool> boolean(const char* name) const;
    std::optional<int64_t> integer(const char* name, int64_t minimum = std::numeric_limits<int64_t>::min(),
                                   int64_t maximum = std::numeric_limits<int64_t>::max()) const;
    std::optional<double> number(const char* name, double minimum, double maximum) const;
    std::optional<std::string> text(const char* name) const;
    std::optional<std::string> one_of(const char* name, std::initializer_list<std::string_view> values) const;
    const Json* object(const char* name) const;
    const Json* array(const char* name) const;
    // Return a field that the request must have.
    std::string required_text(const char* name) const;
    const Json& required_array(const char* name) const;

    // Returns the path of the field in the request.
    std::string place(const char* name) const;
    [[noreturn]] void refuse(const char* name, const std::string& why) const;

  private:
    const Json& object_;
    std::string path_;
    mutable std::unordered_set<std::string> read_;  // names, of the request itself only
};

// Returns the kind of a value for messages: "text", "number".
const char* kind_of(const Json& value);

}  // namespace server
