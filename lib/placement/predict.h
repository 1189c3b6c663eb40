// SPDX-License-Identifier: Apache-2.0
// Predicts the speed of a placement from bytes and bandwidths. predict.cpp explains the constants.
#pragma once

#include <cstdint>
#include <span>

#include "model/config.h"
#include "placement/facts.h"
#include "runtime/stream_rule.h"

namespace minim::placement {

struct FormatPart;
struct ModelBytes;
struct Plan;

// Returns the cycles in which a multiprocessor of a GPU decodes a matrix of a format and multiplies it by one row.
double decode_cycles(Format format, int64_t rows, int64_t cols);

// Returns when steps copy experts to a device instead of computing them on the host. The rule is off if the link's bandwidth is
// not known, or if an expert gets too few slots from a step of n_rows rows with even routing. expert_bytes: the bytes of one
// expert, on average.
runtime::StreamRule stream_rule(const DeviceFacts& device, const HostFacts& host, const model::Config& config,
                                double expert_bytes, int64_t n_rows);

// Returns the bytes a second that the host's kernels reach for one row with weights of a format.
double host_rate(const HostFacts& host, Format format);

// Returns the bytes a second in which a device multiplies one row by experts, once they have started.
double experts_rate(const DeviceFacts& device, std::span<const FormatPart> experts);

// Return the seconds in which a dense matrix and the experts of a layer start on a device, for one row.
double dense_start_seconds(const DeviceFacts& device);
double experts_start_seconds(const DeviceFacts& device);

// Returns the part of a layer's experts for which a device takes as long as the host takes for the others, with even routing. A
// larger cache would make decoding slower. The rates are bytes a second of the kernels.
double balanced_part(double device_rate, double host_rate);

// Sets the speeds of a plan and the parts of a token's time, from the places of its layers and experts. kv_reads: by layer, what a row reads
// at the end of the context.
void predict(const Machine& machine, const ModelBytes& bytes, std::span<const uint64_t> kv_reads, Plan& plan);

// Returns how many of the n_used experts of a token are in the fullest of n_groups groups, on average, if all choices of n_expert are
// equally likely: 5.08 of 8 of 256 for 2 groups, 3.51 for 4, 2.56 for 8.
double fullest_group(int64_t n_expert, int64_t n_used, int64_t n_groups);

// The same for the ranks of plan.parallel, on the devices, or each on a host if there are none. `ranks`: what each has; their
// configuration is that of one rank but for n_expert. kv_reads: of each layer on one rank.
void predict_ranks(const Machine& machine, std::span<const ModelBytes> ranks,
                   std::span<const uint64_t> kv_reads, const LinkFacts& link, Plan& plan);

}  // namespace minim::placement
