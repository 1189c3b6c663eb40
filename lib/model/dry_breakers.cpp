// SPDX-License-Identifier: Apache-2.0
#include "model/dry_breakers.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

namespace minim::model {
namespace {

using sampling::DryBreaker;

// Returns the tails of a token that does not contain the breaker `text`. If the token ends with a beginning of `text`,
// the tail is the rest of `text`, in tokens.
std::vector<std::vector<int32_t>> tails_of(std::string_view word, std::string_view text,
                                           const tokenizer::Tokenizer& tokenizer) {
    std::vector<std::vector<int32_t>> tails;
    for (size_t n = std::min(word.size(), text.size() - 1); n > 0; --n) {
        if (!word.ends_with(text.substr(0, n))) continue;
        std::vector<int32_t> tail = tokenizer.encode(text.substr(n), tokenizer::Specials::none);
        if (tail.size() > sampling::k_max_breaker_tail) tail.resize(sampling::k_max_breaker_tail);
        if (std::ranges::find(tails, tail) == tails.end()) tails.push_back(std::move(tail));
    }
    return tails;
}

std::shared_ptr<const DryBreaker> make(const tokenizer::Tokenizer& tokenizer, std::string_view text) {
    auto breaker = std::make_shared<DryBreaker>();
    for (int32_t token = 0; token < tokenizer.n_tokens(); ++token) {
        const std::string_view word = tokenizer.token_bytes(token);
        if (word.find(text) != std::string_view::npos) {
            breaker->entries.push_back({token, {}});
            continue;
        }
        for (auto& tail : tails_of(word, text, tokenizer))
            breaker->entries.push_back({token, std::move(tail)});
    }
    return breaker;
}

}  // namespace

std::shared_ptr<const DryBreaker> DryBreakers::find(const tokenizer::Tokenizer& tokenizer,
                                                    const std::string& text) {
    constexpr size_t k_max_known = 64;
    const std::string key = text.substr(0, sampling::k_max_breaker_bytes);
    const std::lock_guard lock(mutex_);
    if (const auto known = known_.find(key); known != known_.end()) return known->second;
    if (known_.size() >= k_max_known) known_.clear();
    return known_[key] = make(tokenizer, key);
}

}  // namespace minim::model
