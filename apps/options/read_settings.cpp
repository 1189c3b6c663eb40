// SPDX-License-Identifier: Apache-2.0
// Options from the environment and from a configuration file.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
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

// MINIM_CTX_SIZE: --ctx-size.
std::string option_of_variable(std::string_view variable) {
    std::string option = "--";
    for (const char c : variable.substr(variable.find('_') + 1))
        option += c == '_' ? '-' : c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    return option;
}

const char* set_variable(const std::string& variable) {
    const char* text = std::getenv(variable.c_str());
    return text == nullptr || *text == '\0' ? nullptr : text;
}

// The variables that the library, its devices and parse() read themselves.
constexpr std::array<std::string_view, 7> k_other_variables = {
    "MINIM_CONFIG", "MINIM_CPU",         "MINIM_CUDA_DEBUG", "MINIM_CUDA_PATHS",
    "MINIM_LOG",    "MINIM_PLUGIN_PATH", "MINIM_SIM"};

// Returns whether Kubernetes or Docker set a variable because a service or a container is called "minim": MINIM_PORT is then
// "tcp://10.0.0.1:8080".
bool is_service_link(std::string_view name, std::string_view value) {
    constexpr std::array<std::string_view, 3> k_schemes = {"tcp://", "udp://", "sctp://"};
    if (name.starts_with("MINIM_SERVICE_") || name.starts_with("MINIM_PORT_")) return true;
    return name == "MINIM_PORT" &&
           std::ranges::any_of(k_schemes, [&](std::string_view scheme) { return value.starts_with(scheme); });
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
    if (name == "*") return true;  // as in llama.cpp's files
    if (name == "minim") return command != Command::server;
    for (uint32_t i = 0; i <= static_cast<uint32_t>(Command::server); ++i) {
        const auto one = static_cast<Command>(i);
        const std::string_view words = command_name(one);
        if (words == name || words.substr(words.find(' ') + 1) == name) return one == command;
    }
    throw UsageError(fmt::format("{}: there is no program or command '{}'", place, name));
}

// Returns the option of a name in a file, which may also be a short one: "--ctx-size" of ctx-size, "-c" of c.
std::string option_of(Command command, const std::string& name) {
    const std::string full = "--" + name;
    const std::string brief = "-" + name;
    const bool is_full = find_row(full, command) != nullptr || find_foreign(full) != nullptr;
    const bool is_brief = find_row(brief, command) != nullptr || find_foreign(brief) != nullptr;
    return !is_full && is_brief ? brief : full;
}

// Variables of vLLM and SGLang whose names do not say which option is meant.
struct Variable {
    std::string_view name;
    std::string_view option;
};
constexpr Variable k_python_variables[] = {
    {"VLLM_LOGGING_LEVEL", "--verbose"},
    {"VLLM_CPU_KVCACHE_SPACE", "--kv-tokens"},
    {"VLLM_CPU_OMP_THREADS_BIND", "--pin-threads"},
    {"VLLM_CPU_NUM_OF_RESERVED_CPU", "--threads"},
    {"VLLM_HTTP_TIMEOUT_KEEP_ALIVE", "--timeout"},
    {"VLLM_ALLOW_LONG_MAX_MODEL_LEN", "--ctx-size"},
    {"VLLM_BATCH_INVARIANT", "--deterministic"},
    {"SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN", "--ctx-size"},
    {"SGLANG_ENABLE_DETERMINISTIC_INFERENCE", "--deterministic"},
};

// Returns the option that a variable of vLLM or SGLang has a counterpart in, or "".
std::string counterpart_of(std::string_view variable, Command command) {
    for (const Variable& known : k_python_variables)
        if (known.name == variable) return std::string(known.option);
    for (const std::string_view prefix : {"VLLM_", "SGLANG_"}) {
        if (!variable.starts_with(prefix)) continue;
        const std::string option = option_of_variable(variable);
        const Row* row = find_row(option, command);
        return row != nullptr && (row->commands & bit(command)) != 0 ? option : "";
    }
    return {};
}

// Adds one note for all variables of vLLM and SGLang that have a counterpart.
void note_python_variables(Command command, Reading& reading) {
    std::string names;
    std::string ours;
    for (char** entry = environ; *entry != nullptr; ++entry) {
        const std::string_view text = *entry;
        const std::string_view name = text.substr(0, text.find('='));
        const std::string option = counterpart_of(name, command);
        if (option.empty() || name.size() + 1 >= text.size()) continue;
        names += fmt::format("{}{}", names.empty() ? "" : ", ", name);
        ours += fmt::format("{}{} ({})", ours.empty() ? "" : ", ", option, variable_of(option));
    }
    if (names.empty()) return;
    const bool is_one = names.find(',') == std::string::npos;
    reading.notes.push_back(
        fmt::format("{} {} no effect: variables of minim begin with MINIM_; the option{} {}", names,
                    is_one ? "has" : "have", is_one ? " is" : "s are", ours));
}

void add_line(Command command, std::string_view line, const std::string& place, Reading& reading) {
    const size_t sign = line.find('=');
    if (sign == std::string_view::npos)
        throw UsageError(fmt::format("{}: '{}' is not of the form name = value", place, line));
    std::string name(trimmed(line.substr(0, sign)));
    while (name.starts_with('-')) name.erase(0, 1);
    if (name.empty()) throw UsageError(fmt::format("{}: there is no name before the sign =", place));
    if (line.find('\0') != std::string_view::npos)
        throw UsageError(fmt::format("{}: has a zero byte", place));
    std::replace(name.begin(), name.end(), '_', '-');
    const std::string option = option_of(command, name);
    for (const std::string& value : values_of(line.substr(sign + 1), place))
        add_option(command, option, fmt::format("{}: {}", place, name), value, Origin::file, reading);
}

// Refuses variables of options that minim does not have, or adds a note, as for arguments. A name that is nearly an option's gets a
// note; others may be another program's.
void add_other_variables(Command command, Reading& reading) {
    constexpr std::string_view k_llama = "LLAMA_ARG_";
    constexpr std::string_view k_own = "MINIM_";
    for (char** entry = environ; *entry != nullptr; ++entry) {
        const std::string_view text = *entry;
        const size_t sign = text.find('=');
        if (sign == std::string_view::npos || sign + 1 == text.size()) continue;
        const std::string variable(text.substr(0, sign));
        const std::string value(text.substr(sign + 1));
        if (variable.starts_with(k_llama))
            reading.notes.push_back(
                fmt::format("{} has no effect: variables of minim begin with MINIM_, as MINIM_{}", variable,
                            variable.substr(k_llama.size())));
        if (!variable.starts_with(k_own) || is_service_link(variable, value)) continue;
        if (std::ranges::find(k_other_variables, variable) != k_other_variables.end()) continue;
        const std::string option = option_of_variable(variable);
        if (find_row(option, command) != nullptr) continue;  // read above, or another command's
        if (find_foreign(option) != nullptr) {
            add_option(command, option, variable, value, Origin::environment, reading);
            continue;
        }
        const Row* brief = find_row(option.substr(1), command);
        const std::string near =
            brief != nullptr ? std::string(long_name(brief->names)) : nearest_name(option, command);
        if (near.starts_with("--"))
            reading.notes.push_back(fmt::format("{} has no effect: there is no option {}; did you mean {}?",
                                                variable, option, variable_of(near)));
    }
}

std::string without_hyphens(std::string name) {
    name.erase(0, name.find_first_not_of('-'));
    return name;
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
        throw UsageError(
            fmt::format("{} is not known{}", spelling,
                        near.empty() ? "" : fmt::format("; did you mean {}?", without_hyphens(near))));
    }
    if (foreign->is_refused && !asks_for_nothing(*foreign, name, text))
        throw UsageError(fmt::format("{}: {}", spelling, foreign->reason));
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
                if (text == nullptr || is_service_link(variable, text)) return;
                is_found = true;
                add_option(command, name, variable, text, Origin::environment, reading);
            };
            for_each_name(row.names, look);
            for_each_name(row.opposite, look);
        }
    }
    note_python_variables(command, reading);
    add_other_variables(command, reading);
}

void add_config_file(Command command, const std::string& path, Reading& reading) {
    std::ifstream file(path);
    std::error_code ignored;
    if (!file || std::filesystem::is_directory(path, ignored))
        throw UsageError(fmt::format("--config: the file '{}' cannot be read", path));
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
            const std::string_view behind = trimmed(line.substr(end + 1));
            if (!behind.empty() && behind.front() != '#' && behind.front() != ';')
                throw UsageError(
                    fmt::format("{}: '{}' is not expected behind a name in brackets", place, behind));
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
