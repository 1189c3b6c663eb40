// SPDX-License-Identifier: Apache-2.0
// Memory that is given back when none is free, so that what runs then can end in order: nlohmann-json's trees allocate when they are freed, and
// end the process if that fails, and so would a handler of the server's event loop.
#pragma once

namespace program {

// Reserves the memory, and has failed allocations give it back and try again. Throws std::bad_alloc. Call it before other threads run.
void keep_reserve();

// Reserves it again, if it was given back and there is memory. Any thread.
void renew_reserve() noexcept;

}  // namespace program
