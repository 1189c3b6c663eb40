#include "sampling/sampler.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "base/error.h"

namespace minim::sampling {
namespace {

constexpr float k_never = -std::numeric_limits<float>::infinity();

// Stands for "every candidate" where a count of the highest-ranked ones is meant.
constexpr int64_t k_all = std::numeric_limits<int64_t>::max();

// Enough for nearly every draw of a model that knows what it wants to say.
constexpr int64_t k_first_piece = 128;

// Four at once, which compilers do not see by themselves in loops as short as these.
using Floats [[gnu::vector_size(16)]] = float;

Floats load(const float* from) noexcept {
    Floats floats;
    std::memcpy(&floats, from, sizeof(floats));
    return floats;
}

void store(const Floats& floats, float* to) noexcept {
    std::memcpy(to, &floats, sizeof(floats));
}

// By a byte of a mask: the highest value each of its eight logits may keep.
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
      random_(params.seed) {}

void Sampler::accept(int32_t token, bool generated) {
    if (token < 0 || token >= n_vocab_) {
        fail(Status::invalid, "token {} is not in a vocabulary of {}", token, n_vocab_);
    }
    penalties_.accept(token, generated);
}

void Sampler::reset() {
    penalties_.clear();
    penalties_enabled_ = true;
    random_ = Random(params_.seed);
}

Choice Sampler::sample(std::span<const float> logits, std::span<const int32_t> banned_now,
                       std::span<const uint64_t> allowed) {
    copy_row(logits, allowed);
    adjust_row(banned_now);
    Choice choice;
    choice.token = highest();
    const float top = adjusted_[static_cast<size_t>(choice.token)];
    if (top == k_never) {
        fail(Status::invalid, "no token can be chosen: each of the {} is forbidden or has logit -inf",
             n_vocab_);
    }
    if (params_.temperature > 0.0F) choice.token = draw(top);
    if (params_.logprobs) {
        const LogNormaliser normaliser = log_normaliser(logits);
        choice.logprob = normaliser.logprob(logits[static_cast<size_t>(choice.token)]);
        choice.top = top_logprobs(logits, normaliser, params_.n_top_logprobs);
    }
    return choice;
}

void Sampler::copy_row(std::span<const float> logits, std::span<const uint64_t> allowed) {
    if (std::ssize(logits) != n_vocab_) {
        fail(Status::invalid, "a row of {} logits for a vocabulary of {}", logits.size(), n_vocab_);
    }
    // Counted, not searched: a loop without an exit runs in vector registers.
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

// What comes after leaves -inf as it is, so that the mask needs no pass of its own.
void Sampler::copy_allowed(std::span<const float> logits, std::span<const uint64_t> allowed) {
    if (allowed.size() != (logits.size() + 63) / 64) {
        fail(Status::invalid, "a mask of {} words for a vocabulary of {}", allowed.size(), n_vocab_);
    }
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
    if (penalties_enabled_) penalties_.apply(adjusted_);
    for (const LogitBias& entry : params_.logit_bias) {
        float& logit = adjusted_[static_cast<size_t>(entry.token)];
        // A token that is forbidden stays so at +inf, where the sum would be NaN.
        logit = entry.bias == k_never ? k_never : logit + entry.bias;
    }
    for (const int32_t token : forbidden_) adjusted_[static_cast<size_t>(token)] = k_never;
    for (const int32_t token : banned_now) {
        if (token < 0 || token >= n_vocab_) {
            fail(Status::invalid, "banned token {} is not in a vocabulary of {}", token, n_vocab_);
        }
        adjusted_[static_cast<size_t>(token)] = k_never;
    }
}

// The first of the highest, that is the lowest id. Taken in blocks, whose loops run in vector registers.
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

// Inverts the cumulative distribution of the candidates that passed the filters.
int32_t Sampler::draw(float top) {
    ranking_.start(adjusted_, top_k_is_on() ? params_.top_k : k_first_piece);
    const int64_t count = filtered_count(top);
    const Softmax softmax{top, 1.0 / params_.temperature};
    const double target = random_.uniform() * total_weight(count, softmax);
    int32_t chosen = -1;
    double cumulative = 0.0;
    for (int64_t rank = 0; rank < count && ranking_.has(rank); ++rank) {
        const double weight = softmax.weight(ranking_[rank].logit);
        // Where rounding keeps the sum below the target, the last candidate with any weight is chosen.
        if (weight == 0.0) break;
        chosen = ranking_[rank].token;
        cumulative += weight;
        if (cumulative > target) break;
    }
    return chosen;
}

// How many of the highest-ranked candidates pass top_k, top_p and min_p, at least 1: each filter keeps a
// leading part of the ranking.
int64_t Sampler::filtered_count(float top) {
    const bool tempered = params_.order == Order::temperature_first;
    const Softmax softmax{top, tempered ? 1.0 / params_.temperature : 1.0};
    int64_t count = top_k_is_on() ? params_.top_k : k_all;
    if (params_.top_p < 1.0F) count = nucleus_count(count, softmax);
    if (params_.min_p > 0.0F) count = min_p_count(count, softmax);
    return count;
}

int64_t Sampler::nucleus_count(int64_t count, const Softmax& softmax) {
    const double threshold = params_.top_p * total_weight(count, softmax);
    double cumulative = 0.0;
    int64_t rank = 0;
    while (rank < count && ranking_.has(rank)) {
        cumulative += softmax.weight(ranking_[rank].logit);
        ++rank;
        if (cumulative >= threshold) break;
    }
    return rank;
}

int64_t Sampler::min_p_count(int64_t count, const Softmax& softmax) {
    const double threshold = params_.min_p;
    int64_t rank = 0;
    while (rank < count && ranking_.has(rank) && softmax.weight(ranking_[rank].logit) >= threshold) ++rank;
    return rank;
}

// Of the `count` highest-ranked candidates, added in their order; of all of them in the order of
// Softmax::total, which needs no ranking.
double Sampler::total_weight(int64_t count, const Softmax& softmax) {
    if (count == k_all) return softmax.total(adjusted_);
    double total = 0.0;
    for (int64_t rank = 0; rank < count && ranking_.has(rank); ++rank) {
        total += softmax.weight(ranking_[rank].logit);
    }
    return total;
}

}  // namespace minim::sampling
