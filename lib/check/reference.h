// SPDX-License-Identifier: Apache-2.0
// Compares the numbers of a model with those of another file of the same model, most often the original one.
#pragma once

#include "check/files.h"

namespace minim::check {

// Compares each matrix and expert. A difference is a fault if it is three times as large as the formats of the two files make it.
void check_reference(const Opened& opened, const Opened& reference, const Reading& reading, Report& report);

}  // namespace minim::check
