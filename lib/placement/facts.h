// SPDX-License-Identifier: Apache-2.0
// The facts about a machine that a plan uses: memory and bandwidth of each device and of the host, given as text or measured.
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
    double multiprocessor_hz = 0.0;      // multiprocessors times their clock; 0: not known
};

// How fast the host's kernels multiply one row by weights of a format, in bytes a second of the weights' size in the checkpoint.
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

// The speeds of a machine, of which some devices are open.
struct MachineRates {
    std::vector<DeviceFacts> devices;  // in the order of the open ones
    HostFacts host;
};

// Parses "cuda:0=96GiB,1790GB/s,pcie=50GB/s"; the last part may be left out. "cuda:0=20GiB" and "cuda:0" stand for a device of
// this machine; the numbers that the text leaves out are 0 in the result. A size is a number with B, kB, MB, GB, TB, KiB, MiB,
// GiB or TiB, a bandwidth the same with "/s". "CUDA0" stands for "cuda:0". Throws invalid, quoting the text.
DeviceFacts parse_device(std::string_view text);

// A device of a plan, and the text that describes it.
struct DescribedDevice {
    DeviceFacts facts;
    std::string text;
};

// Parses the texts of a plan's devices: as parse_device(), and cards (cards.h) with or without a name and a count: "RTX 3090",
// "4x RTX 3090", "cuda:0=RTX 3090", "cuda:0=RTX 3090,pcie=6GB/s", "RTX 3090,RTX 4090". Cards without a name are cuda:0 and so on, as
// far as no text has these names. Throws invalid, quoting the text.
std::vector<DescribedDevice> parse_devices(const std::vector<std::string>& texts);

// Parses "768GiB,576GB/s". Throws as parse_device().
HostFacts parse_host(std::string_view text);

// A device on which a model is opened, and the most memory to take of it, in bytes or as a part of its memory: "cuda:0",
// "cuda:0=20GiB", "cuda:0=0.9". parse_device_budget() throws as parse_device().
struct DeviceBudget {
    std::string name;
    uint64_t bytes = 0;  // 0: not given
    double part = 0.0;   // 0: not given
};
DeviceBudget parse_device_budget(std::string_view text);
// Parses several budgets, separated by commas. Throws as parse_device(), and if a device is named twice.
std::vector<DeviceBudget> parse_device_budgets(std::string_view text);

// Returns the rate of a key, in whole bytes a second, that was measured earlier, or measures it and keeps it in
// $XDG_CACHE_HOME/minim (or ~/.cache/minim) for the next time. Works without a cache if it cannot be read or written.
double cached_number(const std::string& key, const std::function<double()>& measure);

// Returns this library's name of a device: "cuda:0" for "CUDA0", "cpu" for "CPU"; other names stay as they are.
std::string device_name(std::string_view text);

// Returns the facts of this machine: the memory that processes may use, and the bandwidth that n_threads threads reach,
// measured in some 100 ms and cached.
HostFacts measured_host(int32_t n_threads);

}  // namespace minim::placement
