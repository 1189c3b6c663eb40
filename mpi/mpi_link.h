// SPDX-License-Identifier: Apache-2.0
// Messages over MPI. No call waits in MPI, which does not return if a process is lost, whatever the error handler says.
#pragma once

#include <memory>

#include "ranks/link.h"

namespace minim::mpi {

// Initialises MPI unless the host has, and duplicates its world. MPI is finalised when the process ends, if it was initialised here,
// all links have ended and none has given up. Throws unsupported if MPI cannot serve several threads, and peer_lost.
std::unique_ptr<ranks::Link> open_link();

}  // namespace minim::mpi
