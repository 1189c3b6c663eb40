// SPDX-License-Identifier: Apache-2.0
#include "json.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <utility>
#include <vector>

#include "error.h"

namespace server {

namespace {

constexpr size_t k_max_depth = 100;
constexpr size_t k_max_members = 1000;  // of one object: ordered_json finds a key by linear search
constexpr size_t k_max_values = 2'000'000;

// Throws ApiError if a text exceeds the limits. Counts without building a tree. `text` need not be JSON.
void check_limits(std::string_view text) {
    std::vector<size_t> members;  // commas of each open container
    size_t n_values = 0;
    bool is_string = false;
    for (size_t i = 0; i < text.size(); ++i) {
        const char c = text[i];
        if (is_string) {
            if (c == '\\') ++i;
            is_string = c != '"';
            continue;
        }
        if (c == '"') is_string = true;
        if (c == '{' || c == '[') {
            if (members.size() == k_max_depth)
                throw ApiError{
                    400, "the JSON is nested deeper than " + std::to_string(k_max_depth) + " levels", "", ""};
            members.push_back(0);
        }
        if ((c == '}' || c == ']') && !members.empty()) members.pop_back();
        if (c == ':' && !members.empty() && ++members.back() > k_max_members)
            throw ApiError{
                400, "an object of the JSON has more than " + std::to_string(k_max_members) + " members", "",
                ""};
        if (c == ',' && ++n_values > k_max_values)
            throw ApiError{400, "the JSON has more than " + std::to_string(k_max_values) + " values", "", ""};
    }
}

// Returns the unit of UTF-16 that an escape \uXXXX at `at` stands for; -1 if there is none.
int32_t escaped_unit(std::string_view text, size_t at) {
    constexpr size_t k_length = 6;
    if (at + k_length > text.size() || text[at] != '\\' || text[at + 1] != 'u') return -1;
    uint32_t unit = 0;
    const char* end = text.data() + at + k_length;
    const auto [rest, error] = std::from_chars(text.data() + at + 2, end, unit, 16);
    return error == std::errc() && rest == end ? static_cast<int32_t>(unit) : -1;
}

// Replaces escapes of half a character by U+FFFD: a client that cuts texts at units of UTF-16 makes them, and would send them again
// with every request of the conversation.
std::string without_halves(std::string_view text) {
    const auto is_high = [](int32_t unit) { return unit >= 0xD800 && unit < 0xDC00; };
    const auto is_low = [](int32_t unit) { return unit >= 0xDC00 && unit < 0xE000; };
    std::string kept;
    kept.reserve(text.size());
    for (size_t i = 0; i < text.size();) {
        const int32_t unit = escaped_unit(text, i);
        const bool is_pair = is_high(unit) && is_low(escaped_unit(text, i + 6));
        const size_t length = is_pair ? 12 : unit >= 0 ? 6 : text[i] == '\\' && i + 1 < text.size() ? 2 : 1;
        if (!is_pair && (is_high(unit) || is_low(unit))) {
            kept += "\\ufffd";
        } else {
            kept += text.substr(i, length);
        }
        i += length;
    }
    return kept;
}

Json parsed(std::string_view text, const Json::parser_callback_t& keeps) {
    try {
        return Json::parse(text, keeps);
    } catch (const Json::parse_error&) {
        return Json::parse(without_halves(text), keeps);
    }
}

// `keeps`: of nlohmann::json, or null for all.
Json parse_object(std::string_view text, const Json::parser_callback_t& keeps) {
    if (text.find_first_not_of(" \t\r\n") == std::string_view::npos)
        throw ApiError{400, "the body is empty; it must be a JSON object", "", ""};
    check_limits(text);
    try {
        Json body = parsed(text, keeps);
        if (!body.is_object()) throw ApiError{400, "the body is not a JSON object", "", ""};
        return body;
    } catch (const Json::parse_error& error) {
        throw ApiError{400, "the body is not valid JSON in UTF-8 (byte " + std::to_string(error.byte) + ")",
                       "", ""};
    } catch (const Json::exception&) {
        throw ApiError{400, "the body has a number that is out of range", "", ""};
    }
}

}  // namespace

std::string to_text(const Json& value) {
    return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json call_json(const std::string& id, const std::string& name, Json arguments) {
    Json call = id.empty() ? Json::object() : Json{{"id", id}};
    call["type"] = "function";
    call["function"] = {{"name", name}, {"arguments", std::move(arguments)}};
    return call;
}

std::string event_text(const char* type, const Json& data) {
    return std::string("event: ") + type + "\ndata: " + to_text(data) + "\n\n";
}

Json parse_body(std::string_view text) {
    return parse_object(text, nullptr);
}

Json parse_members(std::string_view text, std::initializer_list<std::string_view> names) {
    return parse_object(text, [&](int depth, Json::parse_event_t event, const Json& key) {
        const bool is_member = depth == 1 && event == Json::parse_event_t::key;
        return !is_member || std::ranges::find(names, key.get_ref<const std::string&>()) != names.end();
    });
}

}  // namespace server
