// SPDX-License-Identifier: Apache-2.0
// Messages from a device's rank to the ranks of other processes. A wait in which another process is silent for longer than the time
// limit ends with peer_lost.
#pragma once

#include <cstdint>
#include <memory>

#include "ranks/processes.h"
#include "runtime/transport.h"

namespace minim::ranks {

// `processes` must outlive it.
std::unique_ptr<runtime::Transport> make_remote_transport(Processes& processes, int32_t device);

}  // namespace minim::ranks
