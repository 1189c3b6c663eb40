// SPDX-License-Identifier: Apache-2.0
// The options of generation by name, with type, range, default and help: for settings screens of hosts, and for
// bindings, which need no list of their own.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "engine/answer.h"

namespace minim::engine {

enum class OptionType : int32_t { integer = 1, number = 2 };

struct GenerateOption {
    const char* name;
    OptionType type;
    double minimum;  // of an integer option: the nearest double to `least`
    double maximum;
    double default_value;
    const char* help;
    int64_t least;  // of an integer option; exact
    int64_t most;
    void (*set_integer)(GenerateParams& params, int64_t value);  // null for numbers
    void (*set_number)(GenerateParams& params, double value);    // null for integers
};

std::span<const GenerateOption> generate_options() noexcept;

// Set an option. Throw invalid, naming the option, its range and the value; a number option accepts integers too.
void set_option(GenerateParams& params, std::string_view name, int64_t value);
void set_option(GenerateParams& params, std::string_view name, double value);

}  // namespace minim::engine
