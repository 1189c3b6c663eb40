// SPDX-License-Identifier: Apache-2.0
#include "sampling/sampler.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "base/error.h"

namespace minim::sampling {
namespace {

// As a count of the highest-ranked candidates: all of them.
constexpr int64_t k_all = std::numeric_limits<int64_t>::max();

// Enough for nearly every draw from a typical distribution.
constexpr int64_t k_first_piece = 128;

// Four at once: compilers do not vectorise loops as short as these.
using Floats [[gnu::vector_size(16)]] = float;

Floats load(const float* from) noexcept {
    Floats floats;
    std::memcpy(&floats, from, sizeof(floats));
    return floats;
}

void store(const Floats& floats, float* to) noexcept {
    std::memcpy(to, &floats, sizeof(floats));
}

// [byte of a mask]: the highest values that its eight logits may keep.
constexpr auto k_ceilings = [] {
    std::array<std::array<float, 8>, 256> ceilings{};
    for (size_t byte = 0; byte < 256; ++byte)
        for (size_t bit = 0; bit < 8; ++bit)
            ceilings[byte][bit] = (byte >> bit & 1) != 0 ? -k_never : k_never;
    return ceilings;
}();

Params validated(const Params& params, int32_t n_vocab) {
    validate(params, n_vocab);
    return params;
}

std::vector<int32_t> listed(std::span<const uint8_t> forbidden, int32_t n_vocab) {
    if (!forbidden.empty() && std::ssize(forbidden) != n_vocab) {
        fail(Status::invalid, "the mask of forbidden tokens has {} entries for a vocabulary of {}",
             forbidden.size(), n_vocab);
    }
    std::vector<int32_t> ids;
    for (size_t id = 0; id < forbidden.size(); ++id) {
        if (forbidden[id] != 0) ids.push_back(static_cast<int32_t>(id));
    }
    return ids;
}

}  // namespace

Sampler::Sampler(const Params& params, int32_t n_vocab, std::span<const uint8_t> forbidden)
    : params_(validated(params, n_vocab)),
      n_vocab_(n_vocab),
      forbidden_(listed(forbidden, n_vocab)),
      penalties_(params, n_vocab),
      dry_(params),
      random_(params.seed) {}

void Sampler::accept(int32_t token, bool generated) {
    if (token < 0 || token >= n_vocab_) {
        fail(Status::invalid, "token {} is not in a vocabulary of {}", token, n_vocab_);
    }
    penalties_.accept(token, generated);
    dry_.accept(token);
}

Choice Sampler::sample(std::span<const float> logits, std::span<const int32_t> banned_now,
                       std::span<const uint64_t> allowed) {
    copy_row(logits, allowed);
    adjust_row(banned_now);
    Choice choice;
    choice.token = highest();
    const float top = adjusted_[choice.token];
    if (top == k_never) {
        fail(Status::invalid, "no token can be chosen: each of the {} is forbidden or has logit -inf",
             n_vocab_);
    }
    if (params_.temperature > 0.0F) {
        is_short_ = false;
        ranking_.start(adjusted_, top_k_is_on() ? params_.top_k : k_first_piece);
        choice.token = draw(top).value();
    }
    if (params_.logprobs) {
        const LogNormaliser normaliser = log_normaliser(logits);
        choice.logprob = normaliser.logprob(logits[choice.token]);
        choice.top = top_logprobs(logits, normaliser, params_.n_top_logprobs);
    }
    return choice;
}

void Sampler::append_changing(std::vector<int32_t>& tokens, std::span<const int32_t> banned) const {
    penalties_.append_ids(tokens);
    for (const Dry::Penalty& penalty : dry_.penalties()) tokens.push_back(penalty.token);
    for (const LogitBias& entry : params_.logit_bias) tokens.push_back(entry.token);
    tokens.insert(tokens.end(), forbidden_.begin(), forbidden_.end());
    tokens.insert(tokens.end(), banned.begin(), banned.end());
}

// Returns the temperature of the distribution that the filters use.
double Sampler::filter_temperature() const noexcept {
    return params_.order == Order::temperature_first ? 1.0 / params_.temperature : 1.0;
}

// Returns whether a draw sums the weights of the whole row.
bool Sampler::needs_total() const noexcept {
    const bool counts_by_min_p = params_.min_p > 0.0F && !(params_.top_p < 1.0F);
    return params_.temperature > 0.0F && !top_k_is_on() && !counts_by_min_p;
}

TopKQuery Sampler::query(std::span<const int32_t> banned, std::span<const int32_t> accepted,
                         bool masked) const {
    constexpr int32_t k_candidates = 128;  // of a draw without top_k
    TopKQuery query;
    const bool is_greedy = params_.temperature == 0.0F;
    // The device does not know the mask, so it cannot add up the weights of a masked row.
    if (masked && needs_total()) return query;
    if (penalties_.n_ids() + accepted.size() > size_t{2} * k_max_named) return query;
    // The logits that DRY will lower are known only when these tokens are accepted.
    if (dry_.is_on() && !accepted.empty()) return query;
    std::vector<int32_t>& named = query.named;
    append_changing(named, banned);
    if (penalties_.are_on()) named.insert(named.end(), accepted.begin(), accepted.end());
    std::ranges::sort(named);
    named.erase(std::unique(named.begin(), named.end()), named.end());
    const auto n_changing = std::ssize(named) - std::ssize(forbidden_);
    // If no logits change, the named ids are only those that may not be chosen. They matter only for the total, which
    // must not include their weights.
    const bool has_new_logits = !params_.logit_bias.empty() || penalties_.are_on() || dry_.is_on();
    if (!needs_total() && !has_new_logits) named.clear();
    if (std::ssize(named) > k_max_named) return {};

    int64_t n_wanted = is_greedy ? 1 : top_k_is_on() ? params_.top_k : k_candidates;
    if (n_wanted > k_max_candidates) return {};
    n_wanted = std::max<int64_t>(n_wanted, params_.n_top_logprobs);
    n_wanted += std::max<std::ptrdiff_t>(n_changing, 0);
    if (masked || n_wanted > k_max_candidates) n_wanted = k_max_candidates;
    query.n_candidates = static_cast<int32_t>(std::min<int64_t>(n_wanted, n_vocab_));
    query.exact_total = params_.logprobs;
    if (!needs_total()) return query;
    const bool filters = params_.top_p < 1.0F;
    query.inverse_temperature = filters ? filter_temperature() : 1.0 / params_.temperature;
    return query;
}

std::optional<Choice> Sampler::sample(const TopK& top, std::span<const int32_t> banned_now,
                                      std::span<const uint64_t> allowed) {
    if (!allowed.empty()) check_mask(allowed);
    if (top.n_nan > 0) return std::nullopt;
    check_banned(banned_now);
    changing_.clear();
    append_changing(changing_, banned_now);
    short_row_.start(top, n_vocab_, changing_);
    change_row(banned_now);
    if (!short_row_.rank(allowed) || short_row_.candidates().empty()) return std::nullopt;
    const Candidate first = short_row_.candidates()[0];
    Choice choice;
    choice.token = first.token;
    const Random before = random_;
    if (params_.temperature > 0.0F) {
        is_short_ = true;
        ranking_.start(short_row_.candidates(), short_row_.has_others());
        const std::optional<int32_t> token = draw(first.logit);
        if (!token) return std::nullopt;
        choice.token = *token;
    }
    if (params_.logprobs && !report_logprobs(top, choice)) {
        random_ = before;
        return std::nullopt;
    }
    return choice;
}

// Changes the top-k as adjust_row() changes the whole row.
void Sampler::change_row(std::span<const int32_t> banned_now) {
    if (!penalties_are_paused_) {
        for (ShortRow::Change& change : short_row_.changes())
            change.adjusted = penalties_.adjusted(change.token, change.adjusted);
        for (const Dry::Penalty& penalty : dry_.penalties())
            short_row_.change_of(penalty.token).adjusted -= penalty.amount;
    }
    for (const LogitBias& entry : params_.logit_bias) {
        float& logit = short_row_.change_of(entry.token).adjusted;
        logit = entry.bias == k_never ? k_never : logit + entry.bias;
    }
    for (const int32_t token : forbidden_) short_row_.change_of(token).adjusted = k_never;
    for (const int32_t token : banned_now) short_row_.change_of(token).adjusted = k_never;
}

// Returns false if the top-k does not determine the log-probabilities.
bool Sampler::report_logprobs(const TopK& top, Choice& choice) const {
    const std::optional<float> chosen = short_row_.logit(choice.token);
    const int64_t n_top = std::min(params_.n_top_logprobs, n_vocab_);
    if (!chosen || top.exact_total == 0.0 || top.candidates.size() < std::max<size_t>(n_top, 1)) return false;
    const LogNormaliser normaliser{top.candidates[0].logit, portable_log(top.exact_total)};
    choice.logprob = normaliser.logprob(*chosen);
    for (const Candidate& candidate : top.candidates.first(n_top))
        choice.top.push_back({candidate.token, normaliser.logprob(candidate.logit)});
    return true;
}

void Sampler::copy_row(std::span<const float> logits, std::span<const uint64_t> allowed) {
    if (std::ssize(logits) != n_vocab_) {
        fail(Status::invalid, "a row of {} logits for a vocabulary of {}", logits.size(), n_vocab_);
    }
    // Counts instead of searching: a loop without an exit runs in vector registers.
    int32_t n_nan = 0;
    for (const float logit : logits) n_nan += logit != logit ? 1 : 0;
    if (n_nan > 0) {
        const auto first =
            std::find_if(logits.begin(), logits.end(), [](float logit) { return logit != logit; });
        fail(Status::internal, "logits hold NaN at id {} ({} of {} entries)", first - logits.begin(), n_nan,
             logits.size());
    }
    if (!allowed.empty()) return copy_allowed(logits, allowed);
    adjusted_.assign(logits.begin(), logits.end());
}

void Sampler::check_mask(std::span<const uint64_t> allowed) const {
    if (allowed.size() != (static_cast<size_t>(n_vocab_) + 63) / 64)
        fail(Status::invalid, "a mask of {} words for a vocabulary of {}", allowed.size(), n_vocab_);
}

// Copies the row and applies the mask at once. The later steps leave -inf as it is, so that the mask needs no pass of its own.
void Sampler::copy_allowed(std::span<const float> logits, std::span<const uint64_t> allowed) {
    check_mask(allowed);
    adjusted_.resize(logits.size());
    const size_t n_whole = logits.size() / 8 * 8;
    for (size_t first = 0; first < logits.size(); first += 8) {
        const auto& ceilings = k_ceilings[allowed[first / 64] >> (first % 64) & 0xFF];
        if (first == n_whole) {
            for (size_t i = first; i < logits.size(); ++i)
                adjusted_[i] = std::min(logits[i], ceilings[i - first]);
            return;
        }
        for (size_t half = 0; half < 8; half += 4) {
            const Floats logit = load(&logits[first + half]);
            const Floats ceiling = load(&ceilings[half]);
            store(logit < ceiling ? logit : ceiling, &adjusted_[first + half]);
        }
    }
}

void Sampler::adjust_row(std::span<const int32_t> banned_now) {
    if (!penalties_are_paused_) {
        penalties_.apply(adjusted_);
        for (const Dry::Penalty& penalty : dry_.penalties()) adjusted_[penalty.token] -= penalty.amount;
    }
    for (const LogitBias& entry : params_.logit_bias) {
        float& logit = adjusted_[entry.token];
        // A forbidden token stays forbidden if its logit is +inf: the sum would be NaN.
        logit = entry.bias == k_never ? k_never : logit + entry.bias;
    }
    for (const int32_t token : forbidden_) adjusted_[token] = k_never;
    check_banned(banned_now);
    for (const int32_t token : banned_now) adjusted_[token] = k_never;
}

void Sampler::check_banned(std::span<const int32_t> banned) const {
    for (const int32_t token : banned) {
        if (token < 0 || token >= n_vocab_)
            fail(Status::invalid, "banned token {} is not in a vocabulary of {}", token, n_vocab_);
    }
}

// Returns the lowest id among those with the highest logit. Works in blocks, whose loops run in vector registers.
int32_t Sampler::highest() const {
    constexpr size_t k_block = 64;
    std::array<float, k_block> best;
    best.fill(k_never);
    const size_t n_whole = adjusted_.size() / k_block * k_block;
    for (size_t i = 0; i < n_whole; i += k_block)
        for (size_t lane = 0; lane < k_block; ++lane)
            best[lane] = adjusted_[i + lane] > best[lane] ? adjusted_[i + lane] : best[lane];
    float top = *std::max_element(best.begin(), best.end());
    for (size_t i = n_whole; i < adjusted_.size(); ++i) top = std::max(top, adjusted_[i]);

    size_t i = 0;
    for (; i < n_whole; i += k_block) {
        int32_t n_found = 0;
        for (size_t lane = 0; lane < k_block; ++lane) n_found += adjusted_[i + lane] == top ? 1 : 0;
        if (n_found > 0) break;
    }
    while (adjusted_[i] != top) ++i;
    return static_cast<int32_t>(i);
}

// Inverts the cumulative distribution of the candidates that passed the filters. Returns nothing, without drawing a
// random number, if the needed part of the row is not on the host.
std::optional<int32_t> Sampler::draw(float top) {
    const std::optional<int64_t> count = filtered_count(top);
    if (!count) return std::nullopt;
    const Softmax softmax{top, 1.0 / params_.temperature};
    const std::optional<Range> total = total_weight(*count, softmax);
    if (!total) return std::nullopt;
    Random random = random_;
    const double drawn = random.uniform();
    const Range target{drawn * total->least, drawn * total->most};
    int32_t chosen = -1;
    double cumulative = 0.0;
    for (int64_t rank = 0; rank < *count; ++rank) {
        if (!ranking_.has(rank)) {
            if (ranking_.ends_early()) return std::nullopt;
            break;
        }
        const double weight = softmax.weight(ranking_[rank].logit);
        // If rounding keeps the sum below the target, the last candidate with any weight is chosen.
        if (weight == 0.0) break;
        chosen = ranking_[rank].token;
        cumulative += weight;
        if (cumulative > target.most) break;
        if (cumulative > target.least) return std::nullopt;
    }
    random_ = random;
    return chosen;
}

// Returns how many of the highest-ranked candidates pass top_k, top_p and min_p, at least 1: each filter keeps a
// leading part of the ranking.
std::optional<int64_t> Sampler::filtered_count(float top) {
    const Softmax softmax{top, filter_temperature()};
    std::optional<int64_t> count = top_k_is_on() ? params_.top_k : k_all;
    if (params_.top_p < 1.0F) count = nucleus_count(*count, softmax);
    if (count && params_.min_p > 0.0F) count = min_p_count(*count, softmax);
    return count;
}

std::optional<int64_t> Sampler::nucleus_count(int64_t count, const Softmax& softmax) {
    const std::optional<Range> total = total_weight(count, softmax);
    if (!total) return std::nullopt;
    const Range threshold{params_.top_p * total->least, params_.top_p * total->most};
    double cumulative = 0.0;
    int64_t rank = 0;
    while (rank < count && ranking_.has(rank)) {
        cumulative += softmax.weight(ranking_[rank].logit);
        ++rank;
        if (cumulative >= threshold.most) return rank;
        if (cumulative >= threshold.least) return std::nullopt;
    }
    if (rank < count && ranking_.ends_early()) return std::nullopt;
    return rank;
}

std::optional<int64_t> Sampler::min_p_count(int64_t count, const Softmax& softmax) {
    const double threshold = params_.min_p;
    int64_t rank = 0;
    while (rank < count && ranking_.has(rank) && softmax.weight(ranking_[rank].logit) >= threshold) ++rank;
    if (rank < count && !ranking_.has(rank) && ranking_.ends_early()) return std::nullopt;
    return rank;
}

// Returns the weight of the `count` highest-ranked candidates, added in order. The weights of all candidates are added
// in the order of Softmax::total, which needs no ranking.
std::optional<Range> Sampler::total_weight(int64_t count, const Softmax& softmax) {
    if (count == k_all && is_short_) return short_row_.total(softmax);
    double total = 0.0;
    if (count == k_all) total = softmax.total(adjusted_);
    for (int64_t rank = 0; count != k_all && rank < count; ++rank) {
        if (!ranking_.has(rank)) {
            if (ranking_.ends_early()) return std::nullopt;
            break;
        }
        total += softmax.weight(ranking_[rank].logit);
    }
    return Range{total, total};
}

}  // namespace minim::sampling
