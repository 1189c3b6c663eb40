// SPDX-License-Identifier: Apache-2.0
// The facts about a machine that a plan uses: memory and bandwidth of each device and of the host, given as text or measured.
#pragma once

#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "format/format.h"
#include "weights/spec.h"

namespace minim::placement {

// What a device's kernels reach with weights of a format, measured (measure_kernels.h); 0: not measured.
struct KernelRates {
    Format format = Format::f32;
    double experts = 0.0;            // bytes a second of the experts of one row, once they have started
    double dense = 0.0;              // bytes a second of a matrix and one row, once it has started
    double expert_operations = 0.0;  // a second, of the experts of many rows
};

struct DeviceFacts {
    std::string name;  // "cuda:0"
    uint64_t memory_bytes = 0;
    double bytes_per_second = 0.0;       // of its memory
    double link_bytes_per_second = 0.0;  // between host and device; 0: not known
    bool is_measured = false;            // true: the bandwidth was measured; false: it is the nominal rate
    double multiprocessor_hz = 0.0;      // multiprocessors times their clock; 0: not known
    int32_t compute_capability = 0;      // times 10; 0: not known
    bool is_unified = false;             // true: its memory is the host's (unified.h)
    // true: the kernels of the formats with most of the model's weights were measured; false: their speed is estimated.
    bool has_measured_kernels = false;
    double start_seconds = 0.0;             // of a small kernel behind another one, measured; 0: not known
    std::vector<KernelRates> kernels = {};  // by format
};

// What connects the ranks of a model.
struct LinkFacts {
    double sum_seconds = 0.0;       // to add up a row of a few KB on all ranks; 0: not known
    double bytes_per_second = 0.0;  // of each rank; 0: not known
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

// The host and the devices of a request, which may be open. A place of a layer or of its experts is an index: of a device, then of
// the host, then of devices that only rules name.
struct Machine {
    std::vector<DeviceFacts> devices = {};  // in the order of the layers
    HostFacts host = {};
    std::vector<std::shared_ptr<const backend::Backend>> backends = {};  // by place; empty: nothing is open
    // The places of names that only rules have: a device behind the host, or the host for a device that is missing.
    std::map<std::string, int64_t> others = {};
    // Fills in the speeds of the host and the devices for a model with these weights, and returns true; false if they stay unknown.
    // Empty: they are given.
    std::function<bool(Machine&, std::span<const weights::WeightSpec>)> measure = {};

    int64_t host_place() const noexcept { return std::ssize(devices); }
    bool is_open() const noexcept { return !backends.empty(); }
    bool is_unified() const noexcept;  // whether a device shares the host's memory; it is the only one
    bool is_host(int64_t place) const noexcept;          // whether it computes on host memory
    bool has_own_memory(int64_t device) const noexcept;  // whether an open device has, of limited size
    std::string_view name_of(int64_t place) const noexcept;
    // Returns the place of a device that is named as on a command line; none if there is no such device.
    std::optional<int64_t> place_of(std::string_view name) const;
};

// Gives devices whose measured bandwidths are about equal one bandwidth, so that measured noise moves no layers.
void even_out(std::vector<DeviceFacts>& devices);

// Parses "cuda:0=96GiB,1790GB/s,pcie=50GB/s"; the last part may be left out, or be "unified" for a device that shares the host's memory. "cuda:0=20GiB" and "cuda:0" stand for a device of
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

// Parses "9us,20GB/s", or either of the two. A time is a number with ns, us, ms or s. Throws as parse_device().
LinkFacts parse_link(std::string_view text);

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

// Returns this library's name of a device: "cuda:0" for "CUDA0", "cpu" for "CPU"; other names stay as they are.
std::string device_name(std::string_view text);

}  // namespace minim::placement
