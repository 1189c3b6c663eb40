// SPDX-License-Identifier: Apache-2.0
// What a plan knows of a machine: memory and bandwidth of each device and of the host, described as text or found out.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "format/format.h"

namespace minim::placement {

struct DeviceFacts {
    std::string name;  // "cuda:0"
    uint64_t memory_bytes = 0;
    double bytes_per_second = 0.0;       // of its memory
    double link_bytes_per_second = 0.0;  // between host and device; 0: not known
    bool is_measured = false;            // true: the bandwidth was measured; false: it is the nominal rate
};

// How fast the host's kernels multiply one row by weights of a format, in bytes that the checkpoint has of them.
struct FormatRate {
    Format format;
    double bytes_per_second;
};

struct HostFacts {
    uint64_t memory_bytes = 0;
    double bytes_per_second = 0.0;
    bool is_measured = false;  // true: the bandwidth was measured; false: it is the modules' nominal rate
    std::vector<FormatRate> rates = {};  // measured ones; the others are predicted from the bandwidth
};

// "cuda:0=96GiB,1790GB/s,pcie=50GB/s"; the last part may be left out. "cuda:0=20GiB" and "cuda:0" are a device of this
// machine, whose other numbers are 0 here. Sizes are a number with B, kB, MB, GB, TB, KiB, MiB, GiB
// or TiB, bandwidths the same with "/s". "CUDA0" stands for "cuda:0". Throws invalid, quoting the text.
DeviceFacts parse_device(std::string_view text);

// "768GiB,576GB/s". Throws as parse_device().
HostFacts parse_host(std::string_view text);

// "cuda:0", "cuda:0=20GiB", "cuda:0=0.9": a device whose model is opened on it, and the most to take of its memory, in bytes or as a part
// of it. Throws as parse_device().
struct DeviceBudget {
    std::string name;
    uint64_t bytes = 0;  // 0: not said
    double part = 0.0;   // 0: not said
};
DeviceBudget parse_device_budget(std::string_view text);
// Several with commas between. Throws also if a device is named twice.
std::vector<DeviceBudget> parse_device_budgets(std::string_view text);

// Returns the numbers of a key that were measured earlier, or measures them and keeps them in $XDG_CACHE_HOME/minim (or
// ~/.cache/minim) for the next time. A cache that cannot be read or written is none.
std::vector<double> cached_numbers(const std::string& key, size_t count,
                                   const std::function<std::vector<double>()>& measure);

// The name of a device as this library has it: "CUDA0" is "cuda:0", "CPU" is "cpu"; others stay as they are.
std::string device_name(std::string_view text);

// This machine: memory that processes may use, and the bandwidth that n_threads reach, measured in some 100 ms and cached.
HostFacts measured_host(int32_t n_threads);

}  // namespace minim::placement
