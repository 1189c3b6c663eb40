// SPDX-License-Identifier: Apache-2.0
#include "values.h"

#include <array>
#include <charconv>
#include <cmath>
#include <limits>

#include <fmt/format.h>

namespace program {
namespace {

[[noreturn]] void refuse(std::string_view option, std::string_view text, const std::string& why) {
    throw UsageError(fmt::format("{}: '{}' {}", option, text, why));
}

template <typename Number>
std::optional<Number> number_of(std::string_view text) {
    Number number{};
    if (text.starts_with('+')) text.remove_prefix(1);
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
    return number;
}

bool is_equal(std::string_view a, std::string_view b) {
    const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; };
    if (a.size() != b.size()) return false;
    for (size_t i = 0; i < a.size(); ++i)
        if (lower(a[i]) != lower(b[i])) return false;
    return true;
}

const Word* find_word(std::span<const Word> words, std::string_view text) {
    for (const Word& word : words)
        if (is_equal(word.text, text)) return &word;
    return nullptr;
}

std::string listed(std::span<const Word> words) {
    std::string text;
    for (size_t i = 0; i < words.size(); ++i)
        text.append(i == 0 ? "" : i + 1 == words.size() ? " or " : ", ").append(words[i].text);
    return text;
}

// Multiplies a decimal number by `factor`. Returns nothing if the product is not an integer of 63 bits.
std::optional<int64_t> product(std::string_view number, int64_t factor) {
    const auto value = number_of<double>(number);
    if (!value) return std::nullopt;
    if (const auto whole = number_of<int64_t>(number)) {
        int64_t result = 0;
        if (__builtin_mul_overflow(*whole, factor, &result)) return std::nullopt;
        return result;
    }
    const double result = std::nearbyint(*value * static_cast<double>(factor));
    if (!(std::abs(result) < 9e15)) return std::nullopt;
    return static_cast<int64_t>(result);
}

// Reads "131072", "128K" or "130k". As in vLLM a small letter stands for a power of 1000, a capital one for a power of 1024.
std::optional<int64_t> count_of(std::string_view text) {
    constexpr int64_t k_thousand = 1000;
    constexpr int64_t k_binary = 1024;
    if (const auto number = number_of<int64_t>(text)) return number;
    if (text.empty()) return std::nullopt;
    const std::string_view number = text.substr(0, text.size() - 1);
    switch (text.back()) {
        case 'k':
            return product(number, k_thousand);
        case 'm':
            return product(number, k_thousand * k_thousand);
        case 'g':
            return product(number, k_thousand * k_thousand * k_thousand);
        case 'K':
            return product(number, k_binary);
        case 'M':
            return product(number, k_binary * k_binary);
        case 'G':
            return product(number, k_binary * k_binary * k_binary);
        default:
            return std::nullopt;
    }
}

// Reads "4GiB", "4G" (both of 1024), "4GB" (of 1000) or "1000". Returns nothing for other texts.
std::optional<uint64_t> bytes_of(std::string_view text) {
    size_t end = 0;
    while (end < text.size() && ((text[end] >= '0' && text[end] <= '9') || text[end] == '.')) ++end;
    std::string_view unit = text.substr(end);
    while (unit.starts_with(' ')) unit.remove_prefix(1);
    constexpr std::array<std::string_view, 5> k_prefixes = {"", "k", "m", "g", "t"};
    for (size_t power = 0; power < k_prefixes.size(); ++power) {
        const std::string prefix(k_prefixes[power]);
        const bool is_binary = is_equal(unit, prefix) || is_equal(unit, prefix + "ib");
        if (!is_binary && !is_equal(unit, prefix + "b")) continue;
        if (power == 0 && is_equal(unit, "ib")) return std::nullopt;
        const int64_t base = is_binary ? 1024 : 1000;
        int64_t factor = 1;
        for (size_t i = 0; i < power; ++i) factor *= base;
        const auto bytes = product(text.substr(0, end), factor);
        if (!bytes || *bytes < 0) return std::nullopt;
        return static_cast<uint64_t>(*bytes);
    }
    return std::nullopt;
}

void read_integer(const Row& row, std::string_view option, std::string_view text, Value& value) {
    const Type& type = row.type;
    if (const Word* word = find_word(type.words, text)) {
        value.integer = word->number;
        return;
    }
    const auto number = type.kind == Kind::count ? count_of(text) : number_of<int64_t>(text);
    const std::string words = type.words.empty() ? "" : " or " + listed(type.words);
    if (!number)
        refuse(option, text,
               fmt::format("is not {}{}",
                           type.kind == Kind::count ? "a number such as 4096, 128K or 130k" : "an integer",
                           words));
    if (*number < type.least || *number > type.most)
        refuse(option, text, fmt::format("is not from {} to {}{}", type.least, type.most, words));
    value.integer = *number;
}

void read_seed(std::string_view option, std::string_view text, Value& value) {
    value.integer = 0;
    if (const auto seed = number_of<uint64_t>(text)) {
        value.bytes = *seed;
    } else if (const auto negative = number_of<int64_t>(text)) {
        value.integer = *negative;
        value.bytes = static_cast<uint64_t>(*negative);
    } else {
        refuse(option, text, "is not a seed: an integer up to 18446744073709551615, or -1 for chance");
    }
}

void read_real(const Row& row, std::string_view option, std::string_view text, Value& value) {
    const auto number = number_of<double>(text);
    if (!number || !std::isfinite(*number)) refuse(option, text, "is not a number");
    if (*number < row.type.low || *number > row.type.high)
        refuse(option, text, fmt::format("is not from {} to {}", row.type.low, row.type.high));
    value.real = *number;
}

void read_numbers(const Row& row, std::string_view option, std::string_view text, Value& value) {
    std::string_view rest = text;
    while (true) {
        const size_t end = rest.find_first_of(",/");  // llama.cpp takes both
        std::string_view part = rest.substr(0, end);
        while (part.starts_with(' ')) part.remove_prefix(1);
        while (part.ends_with(' ')) part.remove_suffix(1);
        const auto number = number_of<double>(part);
        if (!number || !(*number >= row.type.low && *number <= row.type.high))
            refuse(option, text,
                   fmt::format("is not a list of numbers that are 0 or more{}, such as 3,1",
                               row.type.high < 1e6 ? fmt::format(" and at most {}", row.type.high) : ""));
        value.numbers.push_back(*number);
        if (end == std::string_view::npos) return;
        rest.remove_prefix(end + 1);
    }
}

// Returns a part of a device's memory as text "0.9", or bytes as digits.
std::string budget_of(std::string_view option, std::string_view text) {
    const auto part = number_of<double>(text);
    if (part && *part > 0 && *part <= 1) return fmt::format("{:#}", *part);
    const auto bytes = bytes_of(text);
    if (!bytes) refuse(option, text, "is not a size such as 20GiB, nor a part from 0 to 1 such as 0.9");
    return std::to_string(*bytes);
}

// The same for several, with commas between.
std::string budgets_of(std::string_view option, std::string_view text) {
    std::string all;
    while (true) {
        const size_t end = text.find(',');
        all.append(all.empty() ? "" : ",").append(budget_of(option, text.substr(0, end)));
        if (end == std::string_view::npos) return all;
        text.remove_prefix(end + 1);
    }
}

}  // namespace

std::optional<bool> read_switch(std::string_view text) {
    for (const std::string_view on : {"1", "on", "true", "yes", "enabled"})
        if (is_equal(text, on)) return true;
    for (const std::string_view off : {"0", "off", "false", "no", "disabled"})
        if (is_equal(text, off)) return false;
    return std::nullopt;
}

bool is_switch(std::string_view text) {
    return read_switch(text) || is_equal(text, "auto") || text == "-1";
}

Value read_value(const Row& row, std::string_view option, std::string_view text) {
    Value value;
    value.option = option;
    value.text = text;
    const bool is_word = row.type.kind == Kind::text || row.type.kind == Kind::flag;
    if (text.empty() && !is_word) refuse(option, text, "is no value: one must follow the sign =");
    switch (row.type.kind) {
        case Kind::flag: {
            const auto on = read_switch(text);
            if (!on) refuse(option, text, "is not on or off");
            value.on = *on;
            break;
        }
        case Kind::integer:
        case Kind::count:
            read_integer(row, option, text, value);
            break;
        case Kind::seed:
            read_seed(option, text, value);
            break;
        case Kind::real:
            read_real(row, option, text, value);
            break;
        case Kind::size: {
            const Word* word = find_word(row.type.words, text);
            const auto bytes = bytes_of(text);
            if (word == nullptr && !bytes) refuse(option, text, "is not a size such as 4GiB or 512MiB");
            value.bytes = word != nullptr ? static_cast<uint64_t>(word->number) : *bytes;
            break;
        }
        case Kind::part:
            value.text = budgets_of(option, text);
            break;
        case Kind::numbers:
            read_numbers(row, option, text, value);
            break;
        case Kind::choice: {
            const Word* word = find_word(row.type.words, text);
            if (word == nullptr) refuse(option, text, "is not one of its values: " + listed(row.type.words));
            value.integer = word->number;
            break;
        }
        case Kind::text:
            break;
    }
    return value;
}

}  // namespace program
