// SPDX-License-Identifier: Apache-2.0
// The speeds of this machine, measured once and cached: bandwidths of devices, by copies, and of the host, and its kernels by format.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "backend/backend.h"
#include "base/cpu_features.h"
#include "base/log.h"
#include "placement/backends.h"
#include "placement/facts.h"
#include "weights/spec.h"

namespace minim::placement {

// The numbers that a measurement can give; others in a cache are not believed. By default: bytes a second.
struct NumberRange {
    double least = 1e7;
    double most = 1e14;
};

// Returns the number of a key, rounded, that was measured earlier, or measures it and keeps it in
// $XDG_CACHE_HOME/minim (or ~/.cache/minim) for the next time. Works without a cache if it cannot be read or written.
double cached_number(const std::string& key, const std::function<double()>& measure,
                     const NumberRange& range = {});

// Returns the name of a device's kind and make, as "cuda-" and its description: devices of one make are equally fast.
std::string make_of(const std::string& name, CpuLevel level);

// Opens a device in order to measure it. Throws invalid, quoting `text` with the reason, if no such device is usable here.
std::shared_ptr<const backend::Backend> open_measured(const std::string& name, std::string_view text,
                                                      const Threads& threads, CpuLevel level);

// Returns the facts of this machine: the memory that processes may use, and the bandwidth that n_threads threads reach,
// measured in some 100 ms and cached.
HostFacts measured_host(int32_t n_threads);

// Fills in the rates of the formats that many weights have, because with few threads arithmetic may take longer than reading.
// Each rate is measured in some 50 ms the first time, and cached. Throws out_of_memory.
void measure_rates(HostFacts& host, std::span<const weights::WeightSpec> weights, const Threads& threads,
                   CpuLevel level, const Logger& log);

// Fills in the facts that are 0: the free memory, and the bandwidths of the device's memory and of the link to the host. The
// bandwidths of a device are measured in some 100 ms the first time, and cached. Throws invalid,
// quoting `text` with the reason, if no such device is usable here, and what a device's copies throw.
void complete_device(DeviceFacts& facts, std::string_view text, const Threads& threads, CpuLevel level);

// Fills in the bandwidths of the open devices of this machine, of their links, and of the host read by n_threads threads. They are
// measured once and cached, so that a model is placed alike, and a prompt computed alike, in every run. Returns false, with a line in
// `log`, if a device cannot be measured.
bool measure_machine(Machine& machine, int32_t n_threads, CpuLevel level, const Logger& log);

}  // namespace minim::placement
