// SPDX-License-Identifier: Apache-2.0
// The command line, rewritten for CLI11, which has no short options of several letters and reads `-fa` as `-f a`.
#pragma once

#include <string>
#include <vector>

namespace cli {

struct Arguments {
    std::vector<std::string> values;  // without the program's name
    std::vector<std::string> notes;   // of options that are taken and ignored
};

// Spells llama.cpp's short options out, and takes those that change nothing here. Throws UsageError for a short option that is
// not known: none is read as another one with a value behind it.
Arguments read_arguments(int argc, char** argv);

}  // namespace cli
