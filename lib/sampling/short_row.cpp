// SPDX-License-Identifier: Apache-2.0
#include "sampling/short_row.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace minim::sampling {
namespace {

bool is_allowed(std::span<const uint64_t> allowed, int32_t token) {
    const int64_t id = token;
    return allowed.empty() || (allowed[id / 64] >> (id % 64) & 1) != 0;
}

}  // namespace

void ShortRow::start(const TopK& top, int32_t n_vocab, std::span<const int32_t> tokens) {
    top_ = &top;
    n_vocab_ = n_vocab;
    known_.assign(top.candidates.begin(), top.candidates.end());
    for (size_t i = 0; i < top.named.size(); ++i) known_.push_back({top.named_logits[i], top.named[i]});
    std::ranges::sort(known_, {}, &Candidate::token);
    changes_.clear();
    for (const int32_t token : tokens) changes_.push_back({token, false, 0.0F, 0.0F});
    std::ranges::sort(changes_, {}, &Change::token);
    const auto is_same = [](const Change& a, const Change& b) { return a.token == b.token; };
    changes_.erase(std::unique(changes_.begin(), changes_.end(), is_same), changes_.end());
    for (Change& change : changes_) {
        const std::optional<float> known = logit(change.token);
        change.is_known = known.has_value();
        change.logit = change.adjusted = known.value_or(0.0F);
    }
}

const ShortRow::Change* ShortRow::find(int32_t token) const noexcept {
    const auto at = std::ranges::lower_bound(changes_, token, {}, &Change::token);
    return at != changes_.end() && at->token == token ? &*at : nullptr;
}

ShortRow::Change& ShortRow::change_of(int32_t token) noexcept {
    return *std::ranges::lower_bound(changes_, token, {}, &Change::token);
}

std::optional<float> ShortRow::logit(int32_t token) const {
    const auto at = std::ranges::lower_bound(known_, token, {}, &Candidate::token);
    if (at == known_.end() || at->token != token) return std::nullopt;
    return at->logit;
}

// Ids outside the top-k rank below its last candidate, so that only changed ids can be out of place.
bool ShortRow::rank(std::span<const uint64_t> allowed) {
    is_masked_ = !allowed.empty();
    has_others_ = !top_->is_complete && std::ssize(top_->candidates) < n_vocab_;
    ranked_.clear();
    for (const Candidate& candidate : top_->candidates)
        if (find(candidate.token) == nullptr && is_allowed(allowed, candidate.token))
            ranked_.push_back(candidate);
    const size_t n_unchanged = ranked_.size();
    for (const Change& change : changes_) {
        if (change.adjusted == k_never || !is_allowed(allowed, change.token)) continue;
        if (!change.is_known) return false;
        ranked_.push_back({change.adjusted, change.token});
    }
    if (ranked_.size() > n_unchanged) std::ranges::sort(ranked_, ranks_before);
    if (!has_others_) return true;
    if (top_->candidates.empty()) return false;
    while (!ranked_.empty() && ranks_before(top_->candidates.back(), ranked_.back())) ranked_.pop_back();
    return true;
}

// Takes the device's total, removes the old weights of the changed logits, rescales it from the device's highest logit
// to that of the changed row, and adds the new weights. The bound of the device's error covers the rounding here too: a
// few roundings for each change, and that of the argument of exp, which is proportional to the argument.
std::optional<Range> ShortRow::total(const Softmax& softmax) const {
    const bool is_there =
        top_->inverse_temperature == softmax.inverse_temperature && !is_masked_ && !top_->candidates.empty();
    if (!is_there) return std::nullopt;
    const Softmax before{top_->candidates[0].logit, softmax.inverse_temperature};
    if (std::isinf(before.highest) || std::isinf(softmax.highest)) return std::nullopt;
    double removed = 0.0;
    double added = 0.0;
    for (const Change& change : changes_) {
        if (!change.is_known) return std::nullopt;
        removed += before.weight(change.logit);
        added += softmax.weight(change.adjusted);
    }
    const double distance = (static_cast<double>(before.highest) - static_cast<double>(softmax.highest)) *
                            softmax.inverse_temperature;
    const double scale = portable_exp(distance);
    const double total = (top_->total - removed) * scale + added;
    const double error = top_k_error(n_vocab_) * (1.0 + std::fabs(distance)) * (top_->total * scale + added);
    if (!std::isfinite(total) || !std::isfinite(error)) return std::nullopt;
    return Range{total - error, total + error};
}

}  // namespace minim::sampling
