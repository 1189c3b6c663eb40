// SPDX-License-Identifier: Apache-2.0
// Messages to all ranks: to those of the own process through one transport, to those of other processes through another.
#pragma once

#include <memory>

#include "runtime/transport.h"

namespace minim::ranks {

// `local` counts the ranks of the process from 0, `remote` all ranks, process by process.
std::unique_ptr<runtime::Transport> make_joined_transport(std::unique_ptr<runtime::Transport> local,
                                                          std::unique_ptr<runtime::Transport> remote);

}  // namespace minim::ranks
