// SPDX-License-Identifier: Apache-2.0
// Operations in fast arithmetic that have been called and not been launched, with copies of their arguments. Passes over
// the list (fast_passes.cpp) find what neighbours share; then it is lowered to kernels (fast_step.cpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <variant>
#include <vector>

#include "backend/backend.h"
#include "cuda/fast/attention.h"
#include "cuda/fast/operations.h"
#include "cuda/views.h"

namespace minim::cuda {

class HostExchange;

struct NormCall {
    const float* x;
    int64_t n;
    const float* weight;
    int64_t size;
    float eps;
    float* h;
};
struct LinearCall {
    const float* h;
    int64_t n;
    std::span<const backend::LinearTask> tasks;  // in OperationList::tasks, at most k_max_tasks
};
struct SquaresCall {
    fast::SquaresArgs args;
};
struct AttendCall {
    fast::PrepareArgs prepare;
    fast::AttendArgs attend;
    // Of rows that attend to chosen blocks, where attend.cache has the tables choose.to. Otherwise choose.to.pages_a_head is 0.
    fast::ChoosePagesArgs choose = {};
};
struct RouteCall {
    const float* h;
    int64_t n;
    exact::Weight router;  // is_float()
    fast::Choice choice;
    // An exchange by pieces that the call after this one wanted; `with` null: none.
    HostExchange* with = nullptr;
    fast::PostedPieces post = {};
    const uint32_t* step_to_take = nullptr;  // HostExchange::step_to_take()
};
// The choice by Work::score [n, n_expert].
struct ChooseCall {
    int64_t n;
    int64_t n_expert;
    fast::Choice choice;
};
struct ExpertsCall {
    const float* h;
    int64_t n;
    const int32_t* ids;
    int64_t n_used;
    ExpertViews weights;
    const float* gates;  // null: the slots are not added up
    float* out;          // [n, hidden]; without gates [n * n_used, hidden]
    bool adds;           // to out; not read without gates
    // The pass share_places() sets: the entries of the slots' experts, which the choice has copied; null: none.
    const backend::ExpertPlace* chosen = nullptr;
    // Where the inputs of `down` are written before any rounding, [n * n_used, ff]; null: they are not wanted.
    float* middle = nullptr;
};

// A turn of an exchange by pieces.
struct PostCall {
    HostExchange* with;
    const float* h;
    int64_t n_floats;  // 0: h and the ids have been copied
    const int32_t* ids;
    int64_t n;
    int64_t n_used;
    fast::PostedPieces to;
    const uint32_t* step_to_take;
};
struct CollectCall {
    fast::AwaitedPieces from;
    fast::CollectedSlots slots;
};

struct Operation {
    std::variant<NormCall, LinearCall, SquaresCall, AttendCall, RouteCall, ChooseCall, ExpertsCall, PostCall,
                 CollectCall>
        call;
    // The passes set:
    bool is_folded = false;                // a norm that the next operation computes
    fast::NormRow norm = {};               // the norm that its first kernel computes; x null: none
    const fast::Q8Block* input = nullptr;  // h in blocks; null: it needs none
    bool quantizes = false;                // it makes `input`, at FastWork::input
};

// Rows whose blocks are in FastWork::input: [n, cols] from `of` on.
struct QuantizedRows {
    const float* of = nullptr;  // null: none
    int64_t n = 0;
    int64_t cols = 0;
};

struct OperationList {
    static constexpr size_t k_max_operations = 512;  // 62 layers have 436
    static constexpr size_t k_max_tasks = 64;        // of an operation

    // All with memory for the most operations, so that none allocates.
    std::vector<Operation> operations;
    std::vector<backend::LinearTask> tasks;
    std::vector<backend::Matrix> matrices;  // of the tasks
    bool is_step = false;                   // collects the operations of a step
    QuantizedRows known;                    // by what has been launched so far; valid until it is written

    void reserve() {
        operations.reserve(k_max_operations);
        tasks.reserve(k_max_operations + k_max_tasks);
        matrices.reserve(k_max_operations + k_max_tasks);
    }
    bool is_full() const { return operations.size() == k_max_operations || tasks.size() >= k_max_operations; }
    // Returns copies of at most k_max_tasks tasks.
    std::span<const backend::LinearTask> copy(std::span<const backend::LinearTask> some) {
        for (const backend::LinearTask& task : some) {
            matrices.push_back(*task.weight);
            tasks.push_back({&matrices.back(), task.y, task.add});
        }
        return std::span(tasks).last(some.size());
    }
    void clear() {
        operations.clear();
        tasks.clear();
        matrices.clear();
    }
};

}  // namespace minim::cuda
