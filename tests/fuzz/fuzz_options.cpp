// SPDX-License-Identifier: Apache-2.0
// Lists of options, drawn from the table's names, from names like them and from values: no option is read as another one, no value
// as an option, and nothing is dropped. The oracle below reads the same lists by the rules alone.
//
// The input is a list of bytes, each of which chooses a word. For fuzz_options_corpus an input of 8 bytes is a seed and a number of lists
// (both 32 bits, little-endian), which are drawn by chance: `printf '\1\0\0\0\100\102\17\0' > million` makes a file for 10^6 lists.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "options/read.h"
#include "options/table.h"
#include "require.h"

namespace {

using program::Command;
using program::Foreign;
using program::Kind;
using program::Row;
using program::Takes;
using Words = std::vector<std::string>;

// What the rules say of a list.
struct Expected {
    std::vector<std::pair<const Row*, std::string>>
        given;    // with the value as typed; "" of a flag without one
    Words noted;  // names without effect
    Words positional;
    std::string refused;  // the name that must be refused; "": none
};

struct Names {
    std::map<std::string, const Row*> own;
    std::map<std::string, const Foreign*> of_others;
    std::set<std::string> of_other_commands;
};

const Names& names_of(Command command) {
    static std::map<Command, Names> all;
    Names& names = all[command];
    if (!names.own.empty()) return names;
    for (const auto& section : program::sections()) {
        for (const Row& row : section.rows) {
            const auto add = [&](std::string_view name) {
                if ((row.commands & program::bit(command)) != 0) {
                    names.own[std::string(name)] = &row;
                } else {
                    names.of_other_commands.emplace(name);
                }
            };
            program::for_each_name(row.names, add);
            program::for_each_name(row.opposite, add);
        }
    }
    for (const Foreign& foreign : program::foreign_options())
        program::for_each_name(foreign.names, [&](std::string_view name) {
            names.of_others.emplace(std::string(name), &foreign);
        });
    return names;
}

bool is_option(const std::string& word) {
    const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
    return word.size() >= 2 && word[0] == '-' && (word[1] == '-' || is_letter(word[1]));
}

std::string bare_name(const std::string& word) {
    std::string name = word.starts_with("--") ? word.substr(0, word.find('=')) : word;
    if (word.starts_with("--")) std::replace(name.begin(), name.end(), '_', '-');
    return name;
}

const Foreign* of_others(const Names& names, const std::string& name) {
    const auto find = [&](const std::string& one) {
        const auto found = names.of_others.find(one);
        return found == names.of_others.end() ? nullptr : found->second;
    };
    if (const Foreign* foreign = find(name)) return foreign;
    if (name.starts_with("--") && name.find('.') != std::string::npos)
        if (const Foreign* foreign = find(name.substr(0, name.find('.')))) return foreign;
    if (!name.starts_with("--no-")) return nullptr;
    const Foreign* foreign = find("--" + name.substr(5));
    const bool is_flag =
        foreign != nullptr && (foreign->takes == Takes::nothing || foreign->takes == Takes::toggle);
    return is_flag ? foreign : nullptr;
}

bool is_off(const std::string& word) {
    static const std::set<std::string> k_words = {"off", "0", "false", "no", "disabled"};
    return k_words.contains(word);
}

bool is_toggle(const std::string& word) {
    static const std::set<std::string> k_words = {"on", "auto", "1", "-1", "true", "yes", "enabled"};
    return is_off(word) || k_words.contains(word);
}

// Returns whether a word is a value of an option that may stand alone.
bool is_number_of(const Row& row, const std::string& word) {
    if (!word.empty() && word.find_first_not_of("0123456789") == std::string::npos) return true;
    return std::any_of(row.type.words.begin(), row.type.words.end(),
                       [&](const program::Word& known) { return known.text == word; });
}

// Reads a list by the rules. Stops at what must be refused.
Expected expect(Command command, const Words& words) {
    const Names& names = names_of(command);
    Expected expected;
    for (size_t i = 0; i < words.size(); ++i) {
        const std::string& word = words[i];
        if (word == "--") {
            expected.positional.insert(expected.positional.end(),
                                       words.begin() + static_cast<std::ptrdiff_t>(i) + 1, words.end());
            break;
        }
        if (!is_option(word)) {
            expected.positional.push_back(word);
            continue;
        }
        std::string name = bare_name(word);
        const size_t sign = word.starts_with("--") ? word.find('=') : std::string::npos;
        bool has_value = sign != std::string::npos;
        std::string value = has_value ? word.substr(sign + 1) : "";
        const bool is_known = names.own.contains(name) || of_others(names, name) != nullptr ||
                              names.of_other_commands.contains(name);
        const size_t digits = word.size() > 2 && word[2] == '-' ? 3 : 2;
        if (!is_known && word.size() > digits && std::string("bcnt").find(word[1]) != std::string::npos &&
            word[0] == '-' && word.find_first_not_of("0123456789", digits) == std::string::npos) {
            name = word.substr(0, 2);
            value = word.substr(2);
            has_value = true;
        }
        const auto own = names.own.find(name);
        const Foreign* foreign = own == names.own.end() ? of_others(names, name) : nullptr;
        if (own == names.own.end() && foreign == nullptr) {
            expected.refused = name;
            return expected;
        }
        const Row* row = own == names.own.end() ? nullptr : own->second;
        const bool wants_one = row != nullptr ? row->type.kind != Kind::flag : foreign->takes == Takes::one;
        const bool may_be_bare = row != nullptr && !row->type.bare.empty() && !has_value;
        if (may_be_bare && (i + 1 == words.size() || !is_number_of(*row, words[i + 1]))) {
            value = row->type.bare;
        } else if (wants_one && !has_value) {
            const bool takes_any = row != nullptr && row->type.takes_any;
            const bool next_is_option = i + 1 < words.size() && is_option(words[i + 1]) &&
                                        (names.own.contains(bare_name(words[i + 1])) ||
                                         of_others(names, bare_name(words[i + 1])) != nullptr);
            if (i + 1 == words.size() || (next_is_option && !takes_any)) {
                expected.refused = name;
                return expected;
            }
            value = words[++i];
        }
        if (row != nullptr) {
            expected.given.emplace_back(row, value);
            while (row->type.takes_many && !has_value && i + 1 < words.size() && !is_option(words[i + 1]))
                expected.given.emplace_back(row, words[++i]);
            continue;
        }
        const bool may_toggle = foreign->takes == Takes::toggle || foreign->takes == Takes::nothing;
        if (may_toggle && has_value && !is_toggle(value)) {
            expected.refused = name;
            return expected;
        }
        if (foreign->takes == Takes::toggle && !has_value && i + 1 < words.size() && is_toggle(words[i + 1]))
            value = words[++i];
        if (foreign->takes == Takes::optional && !has_value && i + 1 < words.size() &&
            !is_option(words[i + 1]))
            value = words[++i];
        const size_t n_before = i;
        while (foreign->takes == Takes::many && !has_value && i + 1 < words.size() &&
               !is_option(words[i + 1]))
            ++i;
        if (i == n_before + 1) value = words[i];
        static const std::set<std::string> k_nothing = {"0", "0.0", "-1", "-1.0", "none", "off", "false"};
        const bool is_opposite = names.of_others.count(name) == 0 && name.starts_with("--no-");
        const bool is_value_nothing = k_nothing.contains(value) || (name == "--nnodes" && value == "1");
        const bool asks_nothing = is_opposite || (may_toggle ? is_off(value) : is_value_nothing);
        if (foreign->is_refused && !asks_nothing) {
            expected.refused = name;
            return expected;
        }
        expected.noted.push_back(name);
    }
    return expected;
}

// Returns whether the message names one of the list's options in front of its colon or blank.
bool names_option(const std::string& message, const Words& words) {
    return std::any_of(words.begin(), words.end(), [&](const std::string& word) {
        const std::string typed = word.starts_with("--") ? word.substr(0, word.find('=')) : word;
        return is_option(word) &&
               message.find(typed.substr(0, is_option(typed) ? typed.size() : 2)) != std::string::npos;
    });
}

void check(Command command, const Words& words) {
    const Expected expected = expect(command, words);
    program::Reading reading;
    try {
        reading = program::read_arguments(command, words);
    } catch (const program::UsageError& error) {
        const std::string message = error.what();
        if (!expected.refused.empty()) {
            std::string hyphens = message;
            std::replace(hyphens.begin(), hyphens.end(), '_', '-');
            // A bad value before it may be refused first.
            minim::fuzz::require(
                hyphens.find(expected.refused) != std::string::npos || names_option(message, words),
                "an option is refused by its own name");
            return;
        }
        const bool has_bad_value =
            std::any_of(expected.given.begin(), expected.given.end(), [&](const auto& given) {
                return given.first->type.kind != Kind::text &&
                       message.find('\'' + given.second + '\'') != std::string::npos;
            });
        const bool has_attached = message.find(": '") != std::string::npos;
        minim::fuzz::require(has_bad_value && has_attached, "only a bad value is refused");
        return;
    }
    minim::fuzz::require(expected.refused.empty(), "what is not known, refused or without value is not read");
    minim::fuzz::require(reading.positional == expected.positional, "no value is an argument of its own");
    minim::fuzz::require(reading.given.size() == expected.given.size(), "no option is dropped or added");
    for (size_t i = 0; i < expected.given.size(); ++i) {
        const auto& [row, value] = expected.given[i];
        minim::fuzz::require(reading.given[i].row == row, "no option is read as another one");
        if (row->type.kind == Kind::text)
            minim::fuzz::require(reading.given[i].value.text == value, "a value is read as it is");
    }
    minim::fuzz::require(reading.notes.size() == expected.noted.size(),
                         "each option without effect has a note");
    for (size_t i = 0; i < expected.noted.size(); ++i) {
        std::string note = reading.notes[i].substr(0, reading.notes[i].find(' '));
        std::replace(note.begin(), note.end(), '_', '-');
        note = note.substr(0, note.find('='));
        minim::fuzz::require(note == expected.noted[i], "a note names its option");
    }
}

const Words& known_names() {
    static const Words k_names = [] {
        std::set<std::string> names;
        for (const Command command : {Command::generate, Command::server}) {
            for (const auto& [name, row] : names_of(command).own) names.insert(name);
            for (const auto& [name, row] : names_of(command).of_others) names.insert(name);
        }
        return Words(names.begin(), names.end());
    }();
    return k_names;
}

// Draws a list. `next` returns numbers.
template <typename Next>
void draw_and_check(Next next) {
    static const Words k_values = {
        "5",     "0",    "-1",  "on",     "auto", "x",         "exps=CPU", "3,1", "-5",   "130k",
        "none",  "1GiB", "f16", "cuda:0", "a b",  "",          "-",        "--",  "{}",   "q8_0",
        "serve", "1",    "0.5", "ngram",  "-ngl", "--threads", "-h5",      "-c5", "-n-1", "stray"};
    const Words& names = known_names();
    Words words;
    const size_t n_words = next() % 7;
    for (size_t i = 0; i < n_words; ++i) {
        std::string word = names[(next() * 251 + next()) % names.size()];
        switch (next() % 8) {
            case 0:
                word = k_values[next() % k_values.size()];
                break;
            case 1:  // a letter more, less or another
                word.insert(1 + next() % word.size(), 1, static_cast<char>('a' + next() % 26));
                break;
            case 2:
                word.erase(1 + next() % (word.size() - 1), 1);
                break;
            case 3:
                std::replace(word.begin(), word.end(), '-', '_');
                word.replace(0, word.starts_with("__") ? 2 : 1, word.starts_with("__") ? "--" : "-");
                break;
            case 4:
                word += "=" + k_values[next() % k_values.size()];
                break;
            default:
                break;
        }
        const bool is_general = word == "-h" || word.starts_with("--help") || word.starts_with("--usage") ||
                                word.starts_with("--version") || word.starts_with("--config");
        if (is_general) continue;
        words.push_back(word);
        if (next() % 2 == 0) words.push_back(k_values[next() % k_values.size()]);
    }
    check(next() % 2 == 0 ? Command::generate : Command::server, words);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
#ifndef MINIM_LIBFUZZER  // which would change the number of lists, and wait for them
    if (size == 8) {
        uint32_t seed_and_count[2];
        std::memcpy(seed_and_count, data, sizeof(seed_and_count));
        std::mt19937 random(seed_and_count[0]);
        const uint32_t n_lists = std::min(seed_and_count[1], uint32_t{1} << 21U);
        for (uint32_t i = 0; i < n_lists; ++i) draw_and_check([&] { return static_cast<size_t>(random()); });
        return 0;
    }
#endif
    size_t at = 0;
    draw_and_check([&] { return at < size ? static_cast<size_t>(data[at++]) : size_t{0}; });
    return 0;
}
