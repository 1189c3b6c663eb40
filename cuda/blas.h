// The little of cuBLASLt that the backend needs: products of 16-bit matrices. blas.cpp is the real one, bound when it is
// asked for, so that a machine without the library lacks nothing else; the tests of a machine without a GPU link one that
// works on host memory. Any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "format/format.h"

namespace minim::cuda::blas {

// y [n, rows] = scale * x [n, cols] times the transpose of W [rows, cols], or y += that: floats from W and x of one format,
// F16 or BF16, all rows one after the other and 16-byte aligned.
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

// How the library would compute a problem.
class Plan {
  public:
    virtual ~Plan() = default;
    // As part of a stream; the text says what went wrong.
    virtual const char* multiply(const Operands& operands, void* workspace, void* stream) const = 0;
};

// Ends after its plans.
class Library {
  public:
    virtual ~Library() = default;
    // With so much work space. Null where the library has no way.
    virtual std::unique_ptr<Plan> plan(const Problem& problem, uint64_t workspace_bytes) = 0;
};

// Null where there is no such library, and why.
std::unique_ptr<Library> open(int32_t device, std::string& why_not);

}  // namespace minim::cuda::blas
