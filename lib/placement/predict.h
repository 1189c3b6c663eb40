// SPDX-License-Identifier: Apache-2.0
// Predicts the speed of a placement from bytes and bandwidths. predict.cpp explains the constants.
#pragma once

#include <cstdint>
#include <span>

#include "model/config.h"
#include "placement/facts.h"
#include "runtime/stream_rule.h"

namespace minim::placement {

struct Plan;

// The bytes of one layer, and the cycles in which a multiprocessor decodes its weights (decode_cycles()).
struct LayerReads {
    double dense = 0.0;
    double kv = 0.0;           // of the whole context of one sequence
    double experts = 0.0;      // all experts
    double expert_part = 0.0;  // the experts read for one token
    // Seconds of the host for one row: the time of `dense` and of `experts` at host_rate().
    double dense_on_host = 0.0;
    double experts_on_host = 0.0;
    double dense_cycles = 0.0;
    double expert_cycles = 0.0;  // all experts
};

// Returns the cycles in which a multiprocessor of a GPU decodes a matrix of a format and multiplies it by one row.
double decode_cycles(Format format, int64_t rows, int64_t cols);

// Returns when steps copy experts to a device instead of computing them on the host. The rule is off if the link's bandwidth is
// not known, or if an expert gets too few slots from a step of n_rows rows with even routing. expert_bytes: the bytes of one
// expert, on average.
runtime::StreamRule stream_rule(const DeviceFacts& device, const HostFacts& host, const model::Config& config,
                                double expert_bytes, int64_t n_rows);

struct PredictRequest {
    const model::Config& config;
    std::span<const DeviceFacts> devices;
    const HostFacts& host;
    std::span<const LayerReads> layers;
    double head = 0.0;
    double head_on_host = 0.0;  // seconds
    double head_cycles = 0.0;
    int64_t n_context = 0;
    int64_t n_ubatch = 0;
};

// Returns the bytes a second that the host's kernels reach for one row with weights of a format.
double host_rate(const HostFacts& host, Format format);

// Returns the bytes a second in which a device multiplies one row by weights that need `cycles` to decode, once they have started.
double device_rate(const DeviceFacts& device, double bytes, double cycles);

// Returns the part of a layer's experts for which a device takes as long as the host takes for the others, with even routing. A
// larger cache would make decoding slower. The rates are bytes a second of the kernels.
double balanced_part(double device_rate, double host_rate);

// Sets the speeds of a plan and the parts of a token's time, from the places of its layers and experts.
void predict(const PredictRequest& request, Plan& plan);

}  // namespace minim::placement
