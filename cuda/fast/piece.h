// SPDX-License-Identifier: Apache-2.0
// Pieces: values that say themselves that they are there. A writer stores twelve bytes and the number of the turn by one access; a
// reader loads all of it until the turn is the one that it waits for. So neither needs a fence, a counter or a flag that is cleared,
// and the pieces of an array may arrive in any order.
//
// A turn is never 0, the turn of a piece that was not written yet. A piece is written once a turn.
#pragma once

#include <cstdint>

#include "base/platform.h"

namespace minim::cuda::fast {

struct alignas(16) Piece {
    uint32_t word[3];
    uint32_t turn;
};

// Who sees what is put: the blocks of the device, or the host and other devices as well.
enum class Scope { device, system };

inline constexpr int k_piece_words = 3;

// Returns the number of pieces for `count` words.
MINIM_HOST_DEVICE constexpr int64_t pieces_of(int64_t count) {
    return (count + k_piece_words - 1) / k_piece_words;
}

}  // namespace minim::cuda::fast
