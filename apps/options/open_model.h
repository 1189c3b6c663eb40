// SPDX-License-Identifier: Apache-2.0
// Parameters of the library for the options of the runtime and the model.
#pragma once

#include <string>
#include <vector>

#include "minim/minim.hpp"
#include "options.h"

namespace program {

// Returns the options of a runtime, without a log.
minim::RuntimeOptions runtime_options(const Options& options);

// The room that is left on the devices beside the weights.
struct Room {
    int64_t n_context = 0;   // tokens of a context; 0: of an engine the longest that fits, else none
    int64_t n_requests = 0;  // of an engine; 0: of a session
};

// Returns the options of the model at `path`: by default all usable devices, else the CPU. Adds a line to `notes` for options that
// have no effect without a usable device. Throws std::runtime_error if such an option was given and the CPU alone is not allowed,
// or the checkpoint is not what --quantization says.
minim::ModelOptions model_options(const minim::Runtime& runtime, const Options& options,
                                  const std::string& path, const Room& room, std::vector<std::string>& notes);

minim::Exception with_option_names(const minim::Exception& error, const Options& options);

// Returns what `call` does. An error of the library then names the options that the user gave in place of the fields of minim.h.
template <typename Call>
auto naming_options(const Options& options, const Call& call) {
    try {
        return call();
    } catch (const minim::Exception& error) {
        throw with_option_names(error, options);
    }
}

// Returns the rules of all -ot options as one text.
std::string joined_overrides(const Options& options);

}  // namespace program
