// SPDX-License-Identifier: Apache-2.0
// The time of each operation of a step, of all layers together: on a GPU without the host or the gaps between
// operations, since they are recorded as one and repeated. "in order" is the time of all operations one after the other: what it
// is above their sum is lost between them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "kv/sequence.h"
#include "model/config.h"
#include "model/weights.h"

namespace minim::bench {

struct KernelTime {
    std::string name;
    double seconds = 0.0;     // of all layers
    double bytes = 0.0;       // of weights that it reads; 0: not counted
    double operations = 0.0;  // multiplications and additions; 0: not counted; only of operations with bytes
    bool is_of_step = true;   // an operation of a step whose experts lie on the device
    std::string remark = {};  // of what `seconds` are instead, if not of all layers
};

// Returns the times of the operations of a step with one row of each text, at position `depth`. All layers must lie on
// `backend`. Throws what reserving memory throws.
std::vector<KernelTime> time_kernels(const backend::Backend& backend, const model::Config& config,
                                     const model::Weights& weights, std::span<const kv::Sequence> texts,
                                     int64_t depth);

void print_kernels(std::span<const KernelTime> times);

}  // namespace minim::bench
