// SPDX-License-Identifier: Apache-2.0
// Prints the tokens of a text.
#include <string>

#include <fmt/format.h>

#include "commands.h"
#include "input.h"
#include "open_model.h"
#include "output.h"

namespace cli {

void tokenize(const Options& options, const minim::Cancel& cancel) {
    const std::string text = input_text(options);
    const minim::Runtime runtime = open_runtime(options);
    const minim::Model model = open_model(runtime, options, cancel);
    const minim::Tokens tokens = model.tokenize(text, specials_of(options.specials));
    if (options.ids_only) {
        print(fmt::format("{}\n", fmt::join(tokens.begin(), tokens.end(), " ")));
    } else {
        for (const int32_t id : tokens) {
            print(fmt::format("{:6}  \"{}\"\n", id, printable(model.token_text(id).view())));
        }
    }
    flush_output();
}

}  // namespace cli
