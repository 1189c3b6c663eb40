// SPDX-License-Identifier: Apache-2.0
// The command line, rewritten for CLI11, which has no short options of several letters and reads `-fa` as `-f a`.
#pragma once

#include <string>
#include <vector>

namespace cli {

struct Arguments {
    std::vector<std::string> values;  // without the program's name
    std::vector<std::string> notes;   // remarks on options that are accepted but have no effect
};

// Spells llama.cpp's short options out, and removes options that change nothing here. Throws UsageError for an unknown short
// option, which CLI11 would read as another option with a value attached.
Arguments read_arguments(int argc, char** argv);

}  // namespace cli
