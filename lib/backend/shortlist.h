// How the tops of some rows of logits (base/shortlist.h) are asked for and answered in a backend's memory: questions
// that differ from step to step lie there, so that a recorded step can be repeated with others.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/shortlist.h"

namespace minim::backend {

inline constexpr int64_t k_most_shortlist_rows = 32;  // at a time

// What is asked of a row.
struct ShortlistRow {
    double inverse_temperature;  // of the total; 0: none is wanted
    int32_t n_candidates;        // 0: nothing is asked
    int32_t n_named;
    int32_t first_named;    // in ShortlistTask::named
    int32_t candidates_at;  // where the Candidates go: bytes from ShortlistTask::results on
    int32_t named_at;       // and the logits of the named ids
    int32_t wants_exact_total;
};

// What is answered beside.
struct ShortlistFacts {
    double total;
    double exact_total;
    int32_t n_candidates;  // that there are, of those asked for
    int32_t n_nan;
};

struct ShortlistTask {
    const ShortlistRow* rows;  // [n]
    const int32_t* named;
    std::byte* results;  // ShortlistFacts [n], then what the rows say
};

}  // namespace minim::backend
