// SPDX-License-Identifier: Apache-2.0
// What the vendor's library does on the host, and what it is to do.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cuda/blas.h"

namespace minim::test {

struct FakeBlas {
    std::string why_not = {};                     // it is not there
    bool has_no_way = false;                      // for any problem
    const char* failure = nullptr;                // of every product
    std::vector<cuda::blas::Problem> asked = {};  // for a plan
    int64_t n_products = 0;
};
inline FakeBlas& fake_blas() {
    static FakeBlas fake;
    return fake;
}

}  // namespace minim::test
