// SPDX-License-Identifier: Apache-2.0
// The bundled model's tokenizer files.
#pragma once

#include <string>
#include <string_view>

#include "support/files.h"

namespace minim::tokenizer::testing {

inline std::string read_data(std::string_view name) {
    return test::text_of(std::string(MINIM_TEST_DATA "/tokenizer/").append(name));
}

}  // namespace minim::tokenizer::testing
