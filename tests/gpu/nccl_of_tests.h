// SPDX-License-Identifier: Apache-2.0
// The NCCL that tests use: that of a GPU machine, or the stand-in.
#pragma once

namespace minim::test {

// Call it before devices are connected. Returns whether there is an NCCL that connects n_ranks ranks of one GPU; if not, prints the words that
// CTest takes for "skipped".
bool prepare_nccl(int n_ranks);

}  // namespace minim::test
