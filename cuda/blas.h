// SPDX-License-Identifier: Apache-2.0
// The part of cuBLASLt that the backend needs: products of 16-bit matrices. blas.cpp loads the library at run time,
// so that the backend works without it. Tests on machines without a GPU link an implementation on host memory. Any
// thread may call these functions.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "format/format.h"

namespace minim::cuda::blas {

// A product: y [n, rows] = scale * x [n, cols] times the transpose of W [rows, cols], or y += that. y has floats; W and
// x have one format, F16 or BF16. Rows follow each other without gaps and are 16-byte aligned.
struct Problem {
    Format format;
    int64_t rows;
    int64_t cols;
    int64_t n;
    bool operator==(const Problem&) const = default;
};

struct Operands {
    const void* weight;
    const uint16_t* x;
    float* y;
    float scale;
    bool add;
};

// The library's plan for a problem.
class Plan {
  public:
    virtual ~Plan() = default;
    // Starts the product in a stream; returns an error text, or null.
    virtual const char* multiply(const Operands& operands, void* workspace, void* stream) const = 0;
};

// A library must outlive its plans.
class Library {
  public:
    virtual ~Library() = default;
    // Returns a plan with at most so much work space; null if the library cannot compute the problem.
    virtual std::unique_ptr<Plan> plan(const Problem& problem, uint64_t workspace_bytes) = 0;
};

// Loads the library. Returns null, with the reason in `why_not`, if it does not exist.
std::unique_ptr<Library> open(int32_t device, std::string& why_not);

}  // namespace minim::cuda::blas
