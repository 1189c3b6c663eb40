// SPDX-License-Identifier: Apache-2.0
// The vendor's library on the host, and how tests make it behave.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cuda/blas.h"

namespace minim::test {

struct FakeBlas {
    std::string why_not = {};                     // if not empty, the library does not exist
    bool has_no_way = false;                      // it has no plan for any problem
    const char* failure = nullptr;                // the error of every product; null: none
    std::vector<cuda::blas::Problem> asked = {};  // problems for which a plan was requested
    int64_t n_products = 0;
};
inline FakeBlas& fake_blas() {
    static FakeBlas fake;
    return fake;
}

}  // namespace minim::test
