// SPDX-License-Identifier: Apache-2.0
#include "base/hasher.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace minim {

struct Hasher::State {
    XXH3_state_t xxh3;
};

Hasher::Hasher() : state_(std::make_unique<State>()) {
    reset();
}

Hasher::~Hasher() = default;

void Hasher::reset() noexcept {
    XXH3_64bits_reset(&state_->xxh3);
}

void Hasher::add(std::span<const std::byte> bytes) noexcept {
    XXH3_64bits_update(&state_->xxh3, bytes.data(), bytes.size());
}

uint64_t Hasher::value() const noexcept {
    return XXH3_64bits_digest(&state_->xxh3);
}

}  // namespace minim
