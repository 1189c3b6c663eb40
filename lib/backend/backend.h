// SPDX-License-Identifier: Apache-2.0
// A backend: a device with the operations of the forward pass.
//
// On the CPU, a row's result does not depend on batch composition, chunking or the number of threads.
#pragma once

#include "backend/device.h"
#include "backend/operations.h"

namespace minim::backend {

class Backend : public Device, public Operations {};

}  // namespace minim::backend
