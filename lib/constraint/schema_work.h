// SPDX-License-Identifier: Apache-2.0
// Limits of the work for the schemas of one request, because requests may be hostile.
#pragma once

#include <cstddef>
#include <string_view>

#include "base/error.h"

namespace minim::constraint {

struct SchemaWork {
    size_t n_members = 0;  // of schemas, looked at
    size_t n_checked = 0;  // members of schemas that values were tried with
    size_t n_states = 0;   // of automata of texts

    // A chain of parts that each refer twice to the next one has exponentially many members.
    static constexpr size_t k_max_members = 500'000;
    static constexpr size_t k_max_checked = 5'000'000;
    static constexpr size_t k_max_states = 2'000'000;

    void count_members(size_t n, std::string_view where) {
        n_members += n;
        if (n_members > k_max_members)
            fail(Status::unsupported, "{}: more than {} members of schemas to put together", where,
                 k_max_members);
    }
    void count_checked(size_t n, std::string_view where) {
        n_checked += n;
        if (n_checked > k_max_checked)
            fail(Status::unsupported, "{}: the values of 'enum' and 'const' take more than {} steps to try",
                 where, k_max_checked);
    }
    void count_states(size_t n, std::string_view where) {
        n_states += n;
        if (n_states > k_max_states)
            fail(Status::unsupported, "{}: the expressions of the schema need more than {} states", where,
                 k_max_states);
    }
};

}  // namespace minim::constraint
