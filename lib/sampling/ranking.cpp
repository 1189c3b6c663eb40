// SPDX-License-Identifier: Apache-2.0
#include "sampling/ranking.h"

#include <algorithm>
#include <limits>

namespace minim::sampling {

void Ranking::start(std::span<const float> logits, int64_t first_piece) {
    logits_ = logits;
    sorted_.clear();
    piece_ = std::min(first_piece, std::ssize(logits));
    complete_ = logits.empty();
    has_others_ = false;
}

void Ranking::start(std::span<const Candidate> candidates, bool has_others) {
    logits_ = {};
    sorted_.assign(candidates.begin(), candidates.end());
    complete_ = true;
    has_others_ = has_others;
}

// Collects the best `piece_` candidates behind those already found. Whenever twice as many have gathered, the
// better half stays and its worst logit becomes the floor that later ids must exceed: an equal logit with a
// higher id ranks behind all that stayed.
void Ranking::extend() {
    constexpr float k_infinity = std::numeric_limits<float>::infinity();
    const auto begin = static_cast<std::ptrdiff_t>(sorted_.size());
    const auto piece = static_cast<std::ptrdiff_t>(piece_);
    const Candidate last = begin > 0 ? sorted_.back() : Candidate{k_infinity, -1};
    float floor = -k_infinity;

    const auto keep_better_half = [&] {
        const auto worst_kept = sorted_.begin() + begin + piece - 1;
        std::nth_element(sorted_.begin() + begin, worst_kept, sorted_.end(), ranks_before);
        floor = worst_kept->logit;
        sorted_.resize(begin + piece);
    };

    for (size_t id = 0; id < logits_.size(); ++id) {
        const float logit = logits_[id];
        if (!(logit > floor)) continue;
        const Candidate candidate{logit, static_cast<int32_t>(id)};
        if (!ranks_before(last, candidate)) continue;
        sorted_.push_back(candidate);
        if (std::ssize(sorted_) - begin == 2 * piece) keep_better_half();
    }
    complete_ = std::ssize(sorted_) - begin < piece;
    if (std::ssize(sorted_) - begin > piece) keep_better_half();
    std::sort(sorted_.begin() + begin, sorted_.end(), ranks_before);
    piece_ = std::min(4 * piece_, std::ssize(logits_));
}

}  // namespace minim::sampling
