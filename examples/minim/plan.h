// SPDX-License-Identifier: Apache-2.0
// The command `minim plan`, which has options of its own.
#pragma once

namespace cli {

// `argv[0]` is "plan". Throws UsageError and minim::Exception.
void plan(int argc, char** argv);

}  // namespace cli
