// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/metadata.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <limits>

#include "base/format_text.h"
#include "checkpoint/byte_source.h"
#include "checkpoint/name_order.h"
#include "checkpoint/printable.h"

namespace minim::checkpoint {
namespace {

template <typename T>
T load(const std::string& bytes, uint64_t index) {
    T value;
    std::memcpy(&value, bytes.data() + index * sizeof(T), sizeof(T));
    return value;
}

bool is_signed(MetaType type) {
    return type == MetaType::i8 || type == MetaType::i16 || type == MetaType::i32 || type == MetaType::i64;
}

bool is_floating(MetaType type) {
    return type == MetaType::f32 || type == MetaType::f64;
}

std::string describe(const MetaValue& value) {
    if (!value.is_array()) return std::string(name_of(value.type));
    return format_text("an array of {}", name_of(value.element_type));
}

std::string element_text(const MetaValue& value, uint64_t index) {
    const MetaType type = value.element_type;
    if (type == MetaType::string) return printable(value.string_at(index));
    if (type == MetaType::boolean) return value.unsigned_at(index) != 0 ? "true" : "false";
    if (type == MetaType::f32) return format_text("{}", load<float>(value.bytes, index));
    if (type == MetaType::f64) return format_text("{}", load<double>(value.bytes, index));
    if (is_signed(type)) return format_text("{}", value.signed_at(index));
    return format_text("{}", value.unsigned_at(index));
}

}  // namespace

std::string_view name_of(MetaType type) noexcept {
    switch (type) {
        case MetaType::u8:
            return "u8";
        case MetaType::i8:
            return "i8";
        case MetaType::u16:
            return "u16";
        case MetaType::i16:
            return "i16";
        case MetaType::u32:
            return "u32";
        case MetaType::i32:
            return "i32";
        case MetaType::f32:
            return "f32";
        case MetaType::boolean:
            return "bool";
        case MetaType::string:
            return "string";
        case MetaType::array:
            return "array";
        case MetaType::u64:
            return "u64";
        case MetaType::i64:
            return "i64";
        case MetaType::f64:
            return "f64";
    }
    return "unknown";
}

size_t size_of(MetaType type) noexcept {
    switch (type) {
        case MetaType::u8:
        case MetaType::i8:
        case MetaType::boolean:
            return 1;
        case MetaType::u16:
        case MetaType::i16:
            return 2;
        case MetaType::u32:
        case MetaType::i32:
        case MetaType::f32:
            return 4;
        case MetaType::u64:
        case MetaType::i64:
        case MetaType::f64:
            return 8;
        case MetaType::string:
        case MetaType::array:
            break;
    }
    return 0;
}

bool is_integer(MetaType type) noexcept {
    return size_of(type) != 0 && type != MetaType::boolean && !is_floating(type);
}

int64_t MetaValue::signed_at(uint64_t index) const {
    switch (element_type) {
        case MetaType::u8:
        case MetaType::boolean:
            return load<uint8_t>(bytes, index);
        case MetaType::i8:
            return load<int8_t>(bytes, index);
        case MetaType::u16:
            return load<uint16_t>(bytes, index);
        case MetaType::i16:
            return load<int16_t>(bytes, index);
        case MetaType::u32:
            return load<uint32_t>(bytes, index);
        case MetaType::i32:
            return load<int32_t>(bytes, index);
        case MetaType::u64:
        case MetaType::i64:
            return load<int64_t>(bytes, index);
        default:
            fail_internal("a {} was read as an integer", name_of(element_type));
    }
}

uint64_t MetaValue::unsigned_at(uint64_t index) const {
    return static_cast<uint64_t>(signed_at(index));
}

double MetaValue::number_at(uint64_t index) const {
    if (element_type == MetaType::f32) return load<float>(bytes, index);
    if (element_type == MetaType::f64) return load<double>(bytes, index);
    if (element_type == MetaType::u64) return static_cast<double>(unsigned_at(index));
    return static_cast<double>(signed_at(index));
}

std::string_view MetaValue::string_at(uint64_t index) const {
    if (!is_array()) return bytes;
    const uint64_t begin = index == 0 ? 0 : ends[index - 1];
    return std::string_view(bytes).substr(begin, ends[index] - begin);
}

std::string to_text(const MetaValue& value, size_t max_elements) {
    if (!value.is_array()) return element_text(value, 0);
    std::string text = format_text("{}[{}] {{", name_of(value.element_type), value.count);
    const uint64_t shown = std::min<uint64_t>(value.count, max_elements);
    for (uint64_t i = 0; i < shown; ++i) {
        if (i != 0) text += ", ";
        text += element_text(value, i);
    }
    if (shown < value.count) text += shown == 0 ? "..." : ", ...";
    text += '}';
    return text;
}

Metadata::Metadata(std::string file, std::vector<Entry> entries)
    : file_(std::move(file)), entries_(std::move(entries)), order_(order_by_name(entries_, &Entry::key)) {}

const Metadata::Entry* Metadata::first_repeated() const {
    const auto index = find_repeated(entries_, order_, &Entry::key);
    return index ? &entries_[*index] : nullptr;
}

const Metadata::Entry* Metadata::find_entry(std::string_view key) const {
    const auto index = find_by_name(entries_, order_, &Entry::key, key);
    return index ? &entries_[*index] : nullptr;
}

const MetaValue* Metadata::find(std::string_view key) const {
    const Entry* entry = find_entry(key);
    return entry != nullptr ? &entry->value : nullptr;
}

void Metadata::fail_type(const Entry& entry, std::string_view wanted) const {
    fail_at(file_, Reason::type, entry.position, "metadata key {} is {}, not {}", printable(entry.key),
            describe(entry.value), wanted);
}

std::optional<uint64_t> Metadata::unsigned_integer(std::string_view key) const {
    const Entry* entry = find_entry(key);
    if (entry == nullptr) return std::nullopt;
    if (!is_integer(entry->value.type)) fail_type(*entry, "an integer");
    if (is_signed(entry->value.type) && entry->value.signed_at(0) < 0) {
        fail_at(file_, Reason::value, entry->position, "metadata key {} is {}, which must not be negative",
                printable(key), entry->value.signed_at(0));
    }
    return entry->value.unsigned_at(0);
}

std::optional<std::string_view> Metadata::string(std::string_view key) const {
    const Entry* entry = find_entry(key);
    if (entry == nullptr) return std::nullopt;
    if (entry->value.type != MetaType::string) fail_type(*entry, "a string");
    return entry->value.string_at(0);
}

std::optional<StringArray> Metadata::strings(std::string_view key) const {
    const Entry* entry = find_entry(key);
    if (entry == nullptr) return std::nullopt;
    if (!entry->value.is_array() || entry->value.element_type != MetaType::string) {
        fail_type(*entry, "an array of strings");
    }
    return StringArray(entry->value);
}

std::optional<std::vector<int64_t>> Metadata::integers(std::string_view key) const {
    const Entry* entry = find_entry(key);
    if (entry == nullptr) return std::nullopt;
    const MetaValue& value = entry->value;
    if (!value.is_array() || !is_integer(value.element_type)) fail_type(*entry, "an array of integers");
    std::vector<int64_t> out(value.count);
    for (uint64_t i = 0; i < value.count; ++i) {
        out[i] = value.signed_at(i);
        if (value.element_type == MetaType::u64 && out[i] < 0) {
            fail_at(file_, Reason::value, entry->position,
                    "metadata key {}, element {}, is {}, which is too large", printable(key), i,
                    value.unsigned_at(i));
        }
    }
    return out;
}

}  // namespace minim::checkpoint
