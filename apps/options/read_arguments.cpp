// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <optional>

#include <fmt/format.h>

#include "read.h"
#include "values.h"

namespace program {
namespace {

struct Argument {
    std::string_view text;             // as typed
    std::string typed;                 // without the value
    std::string name;                  // the same, but underscores of long names are hyphens
    std::optional<std::string> value;  // behind "="
};

bool is_letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

// Returns whether an argument looks like an option. Negative numbers and "-" do not.
bool looks_like_option(std::string_view text) {
    return text.size() > 1 && text[0] == '-' && (text[1] == '-' || is_letter(text[1]));
}

Argument split(std::string_view text) {
    Argument argument;
    argument.text = text;
    argument.typed = argument.name = text;
    if (!text.starts_with("--")) return argument;
    const size_t equals = text.find('=');
    argument.typed = argument.name = text.substr(0, equals);
    if (equals != std::string_view::npos) argument.value = text.substr(equals + 1);
    std::replace(argument.name.begin() + 2, argument.name.end(), '_', '-');
    return argument;
}

// Splits "-n128" of llama.cpp into "-n" and "128", for options of one letter that take integers.
bool split_number(Argument& argument) {
    constexpr std::string_view k_letters = "bcnt";
    const std::string_view text = argument.text;
    if (text.size() < 3 || text[0] != '-' || k_letters.find(text[1]) == std::string_view::npos) return false;
    std::string_view digits = text.substr(2);
    if (digits.front() == '-') digits.remove_prefix(1);
    if (digits.empty() || digits.find_first_not_of("0123456789") != std::string_view::npos) return false;
    argument.typed = argument.name = text.substr(0, 2);
    argument.value = text.substr(2);
    return true;
}

// The commands that have a row, as "minim chat, minim-server".
std::string owners(const Row& row) {
    std::string names;
    for (uint32_t i = 0; i <= static_cast<uint32_t>(Command::server); ++i)
        if ((row.commands & (uint32_t{1} << i)) != 0)
            names.append(names.empty() ? "" : ", ").append(command_name(static_cast<Command>(i)));
    return names;
}

class Reader {
  public:
    Reader(Command command, const std::vector<std::string>& arguments)
        : command_(command), arguments_(arguments) {}

    Reading read() {
        while (at_ < arguments_.size()) {
            const std::string& text = arguments_[at_++];
            if (text == "--") {
                reading_.positional.insert(reading_.positional.end(),
                                           arguments_.begin() + static_cast<std::ptrdiff_t>(at_),
                                           arguments_.end());
                break;
            }
            if (looks_like_option(text)) {
                read_option(split(text));
            } else {
                reading_.positional.push_back(text);
            }
        }
        return std::move(reading_);
    }

  private:
    void read_option(Argument argument) {
        if (argument.name == "--help" || argument.name == "-h" || argument.name == "--usage") {
            reading_.wants_help = true;
            return;
        }
        if (argument.name == "--version") {
            reading_.wants_version = true;
            return;
        }
        if (argument.name == "--config") {
            const std::string file = value_of(argument, false);
            if (file.empty()) throw UsageError("--config: its value is missing: a file");
            if (!reading_.config_file.empty())
                throw UsageError(fmt::format("--config is there twice: '{}' and '{}'; one file is possible",
                                             reading_.config_file, file));
            reading_.config_file = file;
            return;
        }
        const Row* row = find_row(argument.name, command_);
        if (row == nullptr && find_foreign(argument.name) == nullptr && split_number(argument))
            row = find_row(argument.name, command_);
        if (row != nullptr && (row->commands & bit(command_)) != 0) return read_row(*row, argument);
        if (const Foreign* foreign = known_elsewhere(argument.name)) return read_foreign(*foreign, argument);
        if (row != nullptr)
            throw UsageError(fmt::format("{} has no option {}; {}", command_name(command_), argument.typed,
                                         owners(*row) + " has"));
        refuse_unknown(argument);
    }

    // vLLM writes --hf-overrides.name too.
    static const Foreign* known_elsewhere(std::string_view name) {
        const Foreign* foreign = find_foreign(name);
        const size_t dot = name.find('.');
        if (foreign == nullptr && dot != std::string_view::npos && name.starts_with("--"))
            foreign = find_foreign(name.substr(0, dot));
        if (foreign == nullptr && name.starts_with("--no-")) {
            foreign = find_foreign("--" + std::string(name.substr(5)));
            if (foreign != nullptr && foreign->takes != Takes::nothing && foreign->takes != Takes::toggle)
                foreign = nullptr;
        }
        return foreign;
    }

    [[noreturn]] void refuse_unknown(const Argument& argument) const {
        const std::string near = nearest_name(argument.name, command_);
        throw UsageError(fmt::format("the option {} is not known{}", argument.typed,
                                     near.empty() ? "" : fmt::format("; did you mean {}?", near)));
    }

    bool is_known(std::string_view text) const {
        const Argument argument = split(text);
        constexpr std::array<std::string_view, 5> k_general = {"-h", "--help", "--usage", "--version",
                                                               "--config"};
        if (std::find(k_general.begin(), k_general.end(), argument.name) != k_general.end()) return true;
        const Row* row = find_row(argument.name, command_);
        return (row != nullptr && (row->commands & bit(command_)) != 0) ||
               known_elsewhere(argument.name) != nullptr;
    }

    // Takes the value behind an option: the part behind "=", or the next argument. An option's name is taken as a value only if
    // `takes_any`.
    std::string value_of(const Argument& argument, bool takes_any) {
        if (argument.value) return *argument.value;
        if (at_ == arguments_.size())
            throw UsageError(fmt::format("{}: its value is missing", argument.typed));
        const std::string& next = arguments_[at_];
        if (!takes_any && looks_like_option(next) && is_known(next))
            throw UsageError(fmt::format("{}: its value is missing: {} is an option{}", argument.typed, next,
                                         argument.typed.starts_with("--")
                                             ? fmt::format(" (else write {}={})", argument.typed, next)
                                             : ""));
        ++at_;
        return next;
    }

    // Returns whether the next argument is a number, or a word that stands for one.
    bool is_number_next(const Row& row) const {
        if (at_ == arguments_.size()) return false;
        const std::string& next = arguments_[at_];
        if (!next.empty() && next.find_first_not_of("0123456789") == std::string::npos) return true;
        return std::any_of(row.type.words.begin(), row.type.words.end(),
                           [&](const Word& word) { return word.text == next; });
    }

    void add(const Row& row, const Argument& argument, std::string_view text) {
        reading_.given.push_back(
            {&row, read_value(row, argument.typed, text), argument.typed, Origin::command_line});
    }

    void read_row(const Row& row, const Argument& argument) {
        if (row.type.kind == Kind::flag) {
            add(row, argument, argument.value.value_or("on"));
            if (has_name(row.opposite, argument.name))
                reading_.given.back().value.on = !reading_.given.back().value.on;
            return;
        }
        if (!row.type.bare.empty() && !argument.value && !is_number_next(row))
            return add(row, argument, row.type.bare);
        add(row, argument, value_of(argument, row.type.takes_any));
        if (!row.type.takes_many || argument.value) return;
        while (at_ < arguments_.size() && !looks_like_option(arguments_[at_]))
            add(row, argument, arguments_[at_++]);
    }

    void read_foreign(const Foreign& foreign, const Argument& argument) {
        const bool is_opposite =
            !has_name(foreign.names, argument.name) && argument.name.starts_with("--no-");
        const std::string value = foreign_value(foreign, argument);
        const bool asks_nothing =
            is_opposite || asks_for_nothing(foreign, argument.name, argument.value.value_or(value));
        if (foreign.is_refused && !asks_nothing)
            throw UsageError(fmt::format("{}: {}", argument.typed, foreign.reason));
        reading_.notes.push_back(fmt::format("{} has no effect: {}", argument.typed, foreign.reason));
    }

    std::string foreign_value(const Foreign& foreign, const Argument& argument) {
        switch (foreign.takes) {
            case Takes::nothing:
                if (argument.value && !is_switch(*argument.value))
                    throw UsageError(
                        fmt::format("{}: '{}' is not on or off", argument.typed, *argument.value));
                return "";
            case Takes::toggle:
                if (argument.value && !is_switch(*argument.value))
                    throw UsageError(
                        fmt::format("{}: '{}' is not on, off or auto", argument.typed, *argument.value));
                if (!argument.value && at_ < arguments_.size() && is_switch(arguments_[at_]))
                    return arguments_[at_++];
                return "";
            case Takes::optional:
                if (!argument.value && at_ < arguments_.size() && !looks_like_option(arguments_[at_]))
                    return arguments_[at_++];
                return argument.value.value_or("");
            case Takes::one:
                return value_of(argument, false);
            case Takes::many: {
                if (argument.value) return *argument.value;
                const size_t first = at_;
                while (at_ < arguments_.size() && !looks_like_option(arguments_[at_])) ++at_;
                return at_ == first + 1 ? arguments_[first] : "";
            }
        }
        return "";
    }

    Command command_;
    const std::vector<std::string>& arguments_;
    size_t at_ = 0;
    Reading reading_;
};

}  // namespace

bool asks_for_nothing(const Foreign& foreign, std::string_view name, std::string_view value) {
    constexpr std::array<std::string_view, 7> k_nothing = {"0", "0.0", "-1", "-1.0", "none", "off", "false"};
    if (foreign.takes == Takes::nothing || foreign.takes == Takes::toggle) return read_switch(value) == false;
    return std::find(k_nothing.begin(), k_nothing.end(), value) != k_nothing.end() ||
           (name == "--nnodes" && value == "1");
}

Reading read_arguments(Command command, const std::vector<std::string>& arguments) {
    return Reader(command, arguments).read();
}

}  // namespace program
