// SPDX-License-Identifier: Apache-2.0
#include "model/gguf_values.h"

#include <cmath>

#include "base/error.h"

namespace minim::model {
namespace {

using checkpoint::Metadata;
using checkpoint::MetaType;
using checkpoint::MetaValue;

bool is_number(MetaType type) {
    return checkpoint::is_integer(type) || type == MetaType::f32 || type == MetaType::f64;
}

// Returns the value of a key, nullptr if there is none. The first entry of an array stands for all of them.
const MetaValue* find(const Metadata& metadata, std::string_view key) {
    const MetaValue* value = metadata.find(key);
    if (value == nullptr || !value->is_array() || value->element_type == MetaType::string) return value;
    if (value->count == 0) fail_file(Reason::value, "metadata key {} is an empty array", key);
    const size_t size = checkpoint::size_of(value->element_type);
    const std::string_view bytes = value->bytes;
    for (uint64_t i = 1; i < value->count; ++i)
        if (bytes.substr(i * size, size) != bytes.substr(0, size))
            fail(Status::unsupported, "metadata key {} differs between layers ({}), which is not supported",
                 key, to_text(*value, 8));
    return value;
}

[[noreturn]] void fail_type(std::string_view key, const MetaValue& value, std::string_view wanted) {
    fail_file(Reason::type, "metadata key {} is {} ({}), not {}", key, to_text(value, 8),
              name_of(value.element_type), wanted);
}

}  // namespace

std::optional<int64_t> whole_number(const Metadata& metadata, std::string_view key) {
    const MetaValue* value = find(metadata, key);
    if (value == nullptr) return std::nullopt;
    if (!is_number(value->element_type)) fail_type(key, *value, "an integer");
    if (checkpoint::is_integer(value->element_type)) {
        const int64_t whole = value->signed_at(0);
        if (value->element_type == MetaType::u64 && whole < 0)
            fail_file(Reason::value, "metadata key {} is {}", key, value->unsigned_at(0));
        return whole;
    }
    constexpr double k_limit = 9007199254740992.0;  // 2^53: integers beyond it are not exact
    const double real = value->number_at(0);
    if (std::trunc(real) != real || std::abs(real) > k_limit) fail_type(key, *value, "an integer");
    return static_cast<int64_t>(real);
}

std::optional<double> number(const Metadata& metadata, std::string_view key) {
    const MetaValue* value = find(metadata, key);
    if (value == nullptr) return std::nullopt;
    if (!is_number(value->element_type)) fail_type(key, *value, "a number");
    return value->number_at(0);
}

std::optional<bool> flag(const Metadata& metadata, std::string_view key) {
    const MetaValue* value = find(metadata, key);
    if (value == nullptr) return std::nullopt;
    const bool is_flag =
        value->element_type == MetaType::boolean ||
        (is_number(value->element_type) && (value->number_at(0) == 0.0 || value->number_at(0) == 1.0));
    if (!is_flag) fail_type(key, *value, "a flag");
    return value->number_at(0) != 0.0;
}

}  // namespace minim::model
