// SPDX-License-Identifier: Apache-2.0
// The operations of the CPU backend, one file each. All are deterministic: a row's bits do not depend on
// the thread that computes a tile, on how rows are cut into tiles, or on batch composition.
#pragma once

#include "backend/backend.h"
#include "base/thread_pool.h"
#include "cpu/kernels.h"
#include "cpu/scratch.h"

namespace minim::cpu {

struct Machine {
    const ThreadPool& pool;
    const KernelTable& kernels;
    bool needs_requests;  // LinearArgs::needs_requests
    // The same for products of one token with weights of 4 bits or more.
    bool needs_requests_of_one;
};

void embed(const Machine& machine, const backend::Matrix& table, std::span<const int32_t> ids, float* x);

void norm(const Machine& machine, const float* x, int64_t n, const backend::Vector& weight, float eps,
          float* h);

void linear(const Machine& machine, CpuScratch& scratch, const float* h, int64_t n,
            std::span<const backend::LinearTask> tasks);

void head_squares(const Machine& machine, const backend::AttendArgs& args, float* squares);

void attend(const Machine& machine, CpuScratch& scratch, const backend::AttendArgs& args);

void route(const Machine& machine, CpuScratch& scratch, const float* h, int64_t n,
           const backend::Matrix& router, const backend::Vector& bias, int64_t n_used, int32_t* ids,
           float* gates);

void experts(const Machine& machine, CpuScratch& scratch, const float* h, int64_t n, const int32_t* ids,
             const float* gates, int64_t n_used, const backend::ExpertWeights& weights, float* y, bool add);

void expert_slots(const Machine& machine, CpuScratch& scratch, const float* h, int64_t n, const int32_t* ids,
                  int64_t n_used, const backend::ExpertWeights& weights, float* out);

// Does the same, and stores the input of `down` of each slot whose expert is here: middle [n * n_used, ff].
void observe_slots(const Machine& machine, CpuScratch& scratch, const float* h, int64_t n, const int32_t* ids,
                   int64_t n_used, const backend::ExpertWeights& weights, float* middle, float* out);

void add_slots(const Machine& machine, const float* out, const float* gates, int64_t n, int64_t n_used,
               int64_t hidden, float* y);

}  // namespace minim::cpu
