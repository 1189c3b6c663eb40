// SPDX-License-Identifier: Apache-2.0
// Options from the environment and from a configuration file.
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include <fmt/format.h>

#include "read.h"
#include "values.h"

namespace program {
namespace {

// --ctx-size: MINIM_CTX_SIZE.
std::string variable_of(std::string_view name) {
    std::string variable = "MINIM_";
    name.remove_prefix(2);
    for (const char c : name)
        variable += c == '-' ? '_' : c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
    return variable;
}

const char* set_variable(const std::string& variable) {
    const char* text = std::getenv(variable.c_str());
    return text == nullptr || *text == '\0' ? nullptr : text;
}

std::string_view trimmed(std::string_view text) {
    while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
    while (!text.empty() && (text.back() == ' ' || text.back() == '\t' || text.back() == '\r'))
        text.remove_suffix(1);
    return text;
}

// Reads one value: "text" with \" \\ \n \t, 'text', or a bare word up to a comment. Moves `text` behind it.
std::string quoted_or_bare(std::string_view& text, const std::string& place, std::string_view ends) {
    const char quote = text.empty() ? '\0' : text.front();
    std::string value;
    if (quote != '"' && quote != '\'') {
        const size_t end = std::min(text.find_first_of(ends), text.size());
        value = trimmed(text.substr(0, end));
        text.remove_prefix(end);
        return value;
    }
    for (size_t i = 1; i < text.size(); ++i) {
        if (text[i] == quote) {
            text.remove_prefix(i + 1);
            return value;
        }
        const bool is_escaped = quote == '"' && text[i] == '\\' && i + 1 < text.size();
        if (is_escaped) ++i;
        value += !is_escaped ? text[i] : text[i] == 'n' ? '\n' : text[i] == 't' ? '\t' : text[i];
    }
    throw UsageError(fmt::format("{}: a text is not closed", place));
}

// Reads the values behind "=": one, or several as ["a", "b"].
std::vector<std::string> values_of(std::string_view text, const std::string& place) {
    std::vector<std::string> values;
    text = trimmed(text);
    const bool is_list = text.starts_with('[');
    if (is_list) text.remove_prefix(1);
    for (bool ends = false; !ends;) {
        text = trimmed(text);
        if (is_list && text.starts_with(']')) {
            text.remove_prefix(1);
            break;
        }
        values.push_back(quoted_or_bare(text, place, is_list ? ",]#" : "#"));
        text = trimmed(text);
        if (is_list && text.empty()) throw UsageError(fmt::format("{}: the list is not closed", place));
        if (is_list && text.starts_with(',')) {
            text.remove_prefix(1);
        } else if (is_list && !text.starts_with(']')) {
            throw UsageError(fmt::format("{}: '{}' is not expected behind a value", place, text));
        }
        ends = !is_list;
    }
    text = trimmed(text);
    if (!text.empty() && !text.starts_with('#'))
        throw UsageError(fmt::format("{}: '{}' is not expected behind the value", place, text));
    return values;
}

// Returns whether the part [name] of a file is for the command. Throws UsageError if there is no such program or command.
bool is_for(std::string_view name, Command command, const std::string& place) {
    if (name == "minim") return command != Command::server;
    for (uint32_t i = 0; i <= static_cast<uint32_t>(Command::server); ++i) {
        const auto one = static_cast<Command>(i);
        const std::string_view words = command_name(one);
        if (words == name || words.substr(words.find(' ') + 1) == name) return one == command;
    }
    throw UsageError(fmt::format("{}: there is no program or command '{}'", place, name));
}

void add_line(Command command, std::string_view line, const std::string& place, Reading& reading) {
    const size_t sign = line.find('=');
    if (sign == std::string_view::npos)
        throw UsageError(fmt::format("{}: '{}' is not of the form name = value", place, line));
    std::string name(trimmed(line.substr(0, sign)));
    while (name.starts_with('-')) name.erase(0, 1);
    std::replace(name.begin(), name.end(), '_', '-');
    for (const std::string& value : values_of(line.substr(sign + 1), place))
        add_option(command, "--" + name, fmt::format("{}: {}", place, name), value, Origin::file, reading);
}

}  // namespace

void add_option(Command command, std::string_view name, const std::string& spelling, const std::string& text,
                Origin origin, Reading& reading) {
    const Row* row = find_row(name, command);
    const Foreign* foreign = find_foreign(name);
    if (row != nullptr && ((row->commands & bit(command)) != 0 || foreign == nullptr)) {
        if ((row->commands & bit(command)) == 0) {
            reading.notes.push_back(
                fmt::format("{} has no effect: {} has no such option", spelling, command_name(command)));
            return;
        }
        Given given{row, read_value(*row, spelling, text), spelling, origin};
        given.value.option = {};  // `spelling` is kept in `given`
        if (has_name(row->opposite, name)) given.value.on = !given.value.on;
        reading.given.push_back(std::move(given));
        return;
    }
    if (foreign == nullptr) {
        const std::string near = nearest_name(name, command);
        throw UsageError(fmt::format("{} is not known{}", spelling,
                                     near.empty() ? "" : fmt::format("; did you mean {}?", near.substr(2))));
    }
    if (foreign->is_refused) throw UsageError(fmt::format("{}: {}", spelling, foreign->reason));
    reading.notes.push_back(fmt::format("{} has no effect: {}", spelling, foreign->reason));
}

void add_environment(Command command, Reading& reading) {
    for (const Section& section : sections()) {
        for (const Row& row : section.rows) {
            if ((row.commands & bit(command)) == 0) continue;
            bool is_found = false;
            const auto look = [&](std::string_view name) {
                if (!name.starts_with("--") || is_found) return;
                const std::string variable = variable_of(name);
                const char* text = set_variable(variable);
                if (text == nullptr) return;
                is_found = true;
                add_option(command, name, variable, text, Origin::environment, reading);
            };
            for_each_name(row.names, look);
            for_each_name(row.opposite, look);
        }
    }
    for (char** entry = environ; *entry != nullptr; ++entry) {
        const std::string_view text = *entry;
        constexpr std::string_view k_llama = "LLAMA_ARG_";
        if (!text.starts_with(k_llama)) continue;
        const std::string_view name = text.substr(0, text.find('='));
        reading.notes.push_back(
            fmt::format("{} has no effect: variables of minim begin with MINIM_, as MINIM_{}", name,
                        name.substr(k_llama.size())));
    }
}

void add_config_file(Command command, const std::string& path, Reading& reading) {
    std::ifstream file(path);
    if (!file) throw UsageError(fmt::format("--config: the file '{}' cannot be read", path));
    bool is_ours = true;
    std::string text;
    for (int64_t n = 1; std::getline(file, text); ++n) {
        const std::string place = fmt::format("{}:{}", path, n);
        std::string_view line = trimmed(text);
        if (n == 1 && line.starts_with("\xEF\xBB\xBF")) line.remove_prefix(3);
        if (line.empty() || line.front() == '#' || line.front() == ';') continue;
        if (line.front() == '[') {
            const size_t end = line.find(']');
            if (end == std::string_view::npos)
                throw UsageError(fmt::format("{}: the name in brackets is not closed", place));
            is_ours = is_for(trimmed(line.substr(1, end - 1)), command, place);
            continue;
        }
        if (is_ours) {
            add_line(command, line, place, reading);
        } else {
            Reading other;  // of another program: its names are checked, but they mean nothing here
            add_line(command, line, place, other);
        }
    }
}

}  // namespace program
