// SPDX-License-Identifier: Apache-2.0
// Chooses the sizes of an engine: the context of a request, the tokens of the KV cache, the requests at once and the rows of a
// step. Plans from facts, the opening of a model and the creation of an engine all choose here; they differ only in how they
// tell whether sizes fit.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>

namespace minim::kv {

// The tokens of a KV cache for all requests, unless one context is longer.
inline constexpr int64_t k_usual_kv_tokens = 131072;

struct EngineSizes {
    int64_t n_context = 0;    // tokens of one request
    int64_t n_kv_tokens = 0;  // of all requests together, in whole pages
    int64_t n_requests = 1;
    int64_t n_rows = 0;  // of a step
    bool operator==(const EngineSizes&) const = default;
};

// What a caller asks for and what it leaves open.
struct EngineWish {
    int64_t n_context = 0;  // 0: the longest that fits, at most `longest`
    int64_t longest = 0;    // the context that the model was trained for
    int64_t n_requests = 1;
    bool fewer_requests = false;  // n_requests may be reduced
    int64_t n_rows = 0;
    bool fewer_rows = false;  // n_rows may be reduced
};

// How sizes fit, from worse to better. Smaller sizes never fit worse.
enum class Fit : uint8_t {
    no,
    tight,  // but for memory that should stay free; only sizes that were asked for may fit like this
    yes,  // at the cost of weights: mapped ones are read from their file again, or the experts on devices are fewer than they
          // would be, and have less memory than the KV cache
    beside,   // weights keep at least as much memory as the KV cache takes from them
    nothing,  // the KV cache takes no memory from weights
};

using FitOf = std::function<Fit(const EngineSizes&)>;

// Returns the sizes to take:
//
//   context       as asked for; else the longest that takes nothing from weights, if that is 8,192 tokens or more; else the longest
//                 that leaves as much to them; else the longest that fits
//   KV cache      from one context to n_requests of them, at most k_usual_kv_tokens if that is more than one context: what fits
//                 as well as one context does, and leaves as much memory to weights as it takes
//   rows          fewer only if else not a single page, or not the context that was asked for, fits; at least 32
//   requests      fewer only if each would have less than a page
//
// n_context is 0 if nothing fits; `fit_of` then says no, or tight, to what was asked for.
EngineSizes choose_sizes(const EngineWish& wish, const FitOf& fit_of);

// Returns the most requests that could be asked for instead of those of the wish; 0: none.
int64_t most_requests(const EngineWish& wish, const FitOf& fit_of);

// Returns the longest context that could be asked for instead of that of the wish, and leaves free what should stay free; 0: none.
int64_t longest_context(const EngineWish& wish, const FitOf& fit_of);

}  // namespace minim::kv
