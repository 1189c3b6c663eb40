// SPDX-License-Identifier: Apache-2.0
// Types and setters for the rows of the table.
#pragma once

#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <optional>
#include <string>
#include <system_error>
#include <type_traits>
#include <vector>

#include <fmt/format.h>

#include "table.h"

namespace program {

constexpr int64_t k_largest_int32 = std::numeric_limits<int32_t>::max();
constexpr int64_t k_largest_int64 = std::numeric_limits<int64_t>::max();
constexpr int64_t k_longest_context = int64_t{1} << 30;

constexpr Type flag() {
    return {};
}

constexpr Type integer(std::string_view value, int64_t least, int64_t most,
                       std::span<const Word> words = {}) {
    return {.kind = Kind::integer, .value = value, .least = least, .most = most, .words = words};
}

constexpr Type count(std::string_view value, int64_t least, int64_t most, std::span<const Word> words = {}) {
    return {.kind = Kind::count, .value = value, .least = least, .most = most, .words = words};
}

constexpr Type real(std::string_view value, double low, double high) {
    return {.kind = Kind::real, .value = value, .low = low, .high = high};
}

constexpr Type choice(std::string_view value, std::span<const Word> words) {
    return {.kind = Kind::choice, .value = value, .words = words};
}

constexpr Type text(std::string_view value) {
    return {.kind = Kind::text, .value = value};
}

// A text for the model, which may look like an option.
constexpr Type any_text(std::string_view value) {
    return {.kind = Kind::text, .value = value, .takes_any = true};
}

constexpr Type texts(std::string_view value) {
    return {.kind = Kind::text, .value = value, .takes_many = true};
}

template <typename Field>
void store(Field& field, const Value& value) {
    if constexpr (std::is_same_v<Field, bool>) {
        field = value.on;
    } else if constexpr (std::is_same_v<Field, std::string> ||
                         std::is_same_v<Field, std::optional<std::string>>) {
        field = value.text;
    } else if constexpr (std::is_same_v<Field, std::vector<std::string>>) {
        field.push_back(value.text);
    } else if constexpr (std::is_same_v<Field, std::vector<double>>) {
        field = value.numbers;
    } else if constexpr (std::is_same_v<Field, double> || std::is_same_v<Field, std::optional<double>>) {
        field = value.real;
    } else if constexpr (std::is_same_v<Field, std::optional<int64_t>>) {
        field = value.integer;
    } else {
        field = static_cast<Field>(value.integer);
    }
}

template <auto member>
void set(Options& options, const Value& value) {
    store(options.*member, value);
}

template <auto member>
void set_sampling(Options& options, const Value& value) {
    store(options.sampling.*member, value);
}

template <auto member>
void set_bytes(Options& options, const Value& value) {
    options.*member = value.bytes;
}

// Reads the file that the value names. Throws UsageError.
inline std::string file_text(const Value& value) {
    std::error_code error;
    std::ifstream file(value.text, std::ios::binary);
    if (!file || std::filesystem::is_directory(value.text, error))
        throw UsageError(fmt::format("{}: the file '{}' cannot be read", value.option, value.text));
    return {std::istreambuf_iterator<char>(file), {}};
}

// The same of a file that must have a text. Throws UsageError also if it is empty.
inline std::string text_in_file(const Value& value) {
    std::string text = file_text(value);
    if (text.find_first_not_of(" \t\r\n\f\v") == std::string::npos)
        throw UsageError(fmt::format("{}: the file '{}' is empty", value.option, value.text));
    return text;
}

// The sections' rows, each in a file of its own.
std::span<const Row> model_rows();
std::span<const Row> answer_rows();
std::span<const Row> minim_rows();
std::span<const Row> convert_rows();
std::span<const Row> server_rows();

}  // namespace program
