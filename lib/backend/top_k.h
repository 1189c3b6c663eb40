// SPDX-License-Identifier: Apache-2.0
// Queries and answers of top-k of rows of logits (`base/top_k.h`), in a backend's memory. Queries change from
// step to step; they are in memory so that a recorded step can be repeated with others.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/top_k.h"

namespace minim::backend {

inline constexpr int64_t k_max_top_k_rows = 32;  // rows of one operation

// The query of a row.
struct TopKRow {
    double inverse_temperature;  // of the total; 0: no total
    int32_t n_candidates;        // 0: no query
    int32_t n_named;
    int32_t first_named;    // in TopKTask::named
    int32_t candidates_at;  // offset of the Candidates in TopKTask::results, in bytes
    int32_t named_at;       // offset of the logits of the named ids
    int32_t wants_exact_total;
};

// The other parts of an answer.
struct TopKFacts {
    double total;
    double exact_total;
    int32_t n_candidates;  // the number found, at most the number requested
    int32_t n_nan;
};

struct TopKTask {
    const TopKRow* rows;  // [n]
    const int32_t* named;
    std::byte* results;  // TopKFacts [n], then the candidates and logits of the rows
};

}  // namespace minim::backend
