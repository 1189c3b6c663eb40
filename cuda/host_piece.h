// SPDX-License-Identifier: Apache-2.0
// The host's side of pieces (fast/piece.h): each is stored and loaded by one instruction of 16 bytes. CPUs with AVX, and those of
// aarch64 from ARMv8.4 on, make such an access to an aligned address at once.
#pragma once

#include <bit>
#include <cstdint>

#include "cuda/fast/piece.h"

namespace minim::cuda {

using PieceBytes = uint32_t __attribute__((vector_size(16), may_alias));

inline void store_piece(fast::Piece* piece, const fast::Piece& value) noexcept {
    *reinterpret_cast<volatile PieceBytes*>(piece) = std::bit_cast<PieceBytes>(value);
}

// What the writer wrote before it put the piece need not be there yet.
inline fast::Piece load_piece(const fast::Piece* piece) noexcept {
    const PieceBytes bytes = *reinterpret_cast<const volatile PieceBytes*>(piece);
    return std::bit_cast<fast::Piece>(bytes);
}

}  // namespace minim::cuda
