// SPDX-License-Identifier: Apache-2.0
// Reads options by the table from a command line, the environment and a configuration file.
#pragma once

#include <string>
#include <vector>

#include "table.h"

namespace program {

enum class Origin { file, environment, command_line };  // the later one counts

// An option with its value.
struct Given {
    const Row* row = nullptr;
    Value value;
    std::string spelling;  // as the user spelled it; errors name it
    Origin origin = Origin::command_line;
};

struct Reading {
    std::vector<Given> given;
    std::vector<std::string> positional;
    std::vector<std::string> notes;  // one for each option without effect
    std::string config_file;
    bool wants_help = false;
    bool wants_version = false;
};

// Reads arguments, without the program's name and the command. Throws UsageError.
Reading read_arguments(Command command, const std::vector<std::string>& arguments);

// Returns whether a value asks for nothing, so that an option that minim does not have may be given with it: "--mmproj none".
bool asks_for_nothing(const Foreign& foreign, std::string_view name, std::string_view value);

// Adds the variables MINIM_CTX_SIZE and so on that are set and not empty. Variables whose names are nearly right and those of llama.cpp
// get a note. Throws UsageError.
void add_environment(Command command, Reading& reading);

// Adds the options of a file: lines `name = value`; # begins a comment, [minim] or [minim-server] a part for one program,
// [*] one for all. Throws
// UsageError with the file and line.
void add_config_file(Command command, const std::string& path, Reading& reading);

// Adds one option with its value, which need not be one that the command has. `spelling`: what errors name.
void add_option(Command command, std::string_view name, const std::string& spelling, const std::string& text,
                Origin origin, Reading& reading);

}  // namespace program
