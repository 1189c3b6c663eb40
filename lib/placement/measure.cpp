// SPDX-License-Identifier: Apache-2.0
#include "placement/measure.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "backend/host_device.h"
#include "base/error.h"
#include "base/format_text.h"
#include "base/memory_info.h"
#include "base/read_bandwidth.h"
#include "base/thread_pool.h"
#include "placement/cards.h"
#include "placement/devices.h"
#include "placement/unified.h"
#include "weights/expand.h"

namespace minim::placement {
namespace {

constexpr uint64_t k_measured_bytes = uint64_t{128} << 20;
constexpr int k_rounds = 12;  // in most rounds, other programs use part of the bandwidth

double measure_bandwidth(int32_t n_threads) {
    const ThreadPool pool(n_threads);
    const ReadBandwidth bandwidth(pool, k_measured_bytes);
    double best = 0.0;
    for (int round = 0; round < k_rounds; ++round) best = std::max(best, bandwidth.measure());
    return best;
}

// Returns the path of a cached measurement; empty if there is no folder for a cache.
std::string cache_path(const std::string& key) {
    const char* cache = std::getenv("XDG_CACHE_HOME");
    const char* home = std::getenv("HOME");
    std::string folder;
    if (cache != nullptr && *cache == '/') {
        folder = cache;
    } else if (home != nullptr && *home == '/') {
        folder = std::string(home) + "/.cache";
    } else {
        return {};
    }
    char host[256] = {};
    std::ifstream name("/proc/sys/kernel/hostname");
    name.getline(host, sizeof(host));
    std::string file = format_text("{}-{}", host, key);
    for (char& c : file)
        if (c == '/' || c == ' ') c = '_';
    return format_text("{}/minim/{}", folder, file);
}

// Reads a number. Returns nothing if the file is missing or holds anything else.
std::optional<double> read_number(const std::string& path, const NumberRange& range) {
    std::ifstream file(path);
    std::string line;
    std::getline(file, line);
    double value = 0.0;
    const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), value);
    if (error != std::errc() || !(value > range.least && value < range.most)) return {};
    return value;
}

constexpr uint64_t k_max_copied_bytes = uint64_t{256} << 20;
constexpr uint64_t k_min_copied_bytes = uint64_t{64} << 10;
constexpr double k_long_copy_seconds = 5e-3;
constexpr int k_copies = 5;
constexpr const char* k_what = "measuring bandwidths";

template <typename Copy>
double seconds_of(const Copy& copy) {
    const auto start = std::chrono::steady_clock::now();
    copy();
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    return std::max(taken.count(), 1e-9);
}

// Returns the bytes a second of the fastest round.
template <typename Copy>
double rate_of(uint64_t bytes, const Copy& copy) {
    double best = 0.0;
    for (int round = 0; round < k_copies; ++round)
        best = std::max(best, static_cast<double>(bytes) / seconds_of(copy));
    return best;
}

uint64_t copied_bytes(const backend::Backend& device) {
    return std::min(k_max_copied_bytes, device.available_bytes() / 4);
}

// Returns the bandwidth of the device's memory: a copy reads and writes each byte.
double measure_memory(const backend::Backend& device) {
    const uint64_t bytes = copied_bytes(device);
    const std::unique_ptr<backend::Memory> from = device.allocate(bytes, k_what);
    const std::unique_ptr<backend::Memory> to = device.allocate(bytes, k_what);
    return rate_of(2 * bytes, [&] { device.copy(to->data(), from->data(), bytes); });
}

double measure_link(const backend::Backend& device) {
    const uint64_t most = copied_bytes(device);
    const std::unique_ptr<backend::Memory> to = device.allocate(most, k_what);
    const std::unique_ptr<backend::Memory> staging = device.allocate_staging(most, k_what);
    std::fill_n(staging->data(), most, std::byte{1});
    // Find a size that takes long enough to measure: a slow link reaches it with few bytes.
    uint64_t bytes = std::min(k_min_copied_bytes, most);
    while (bytes < most &&
           seconds_of([&] { device.write(to->data(), staging->data(), bytes); }) < k_long_copy_seconds)
        bytes = std::min(4 * bytes, most);
    return rate_of(bytes, [&] { device.write(to->data(), staging->data(), bytes); });
}

backend::DeviceInfo info_of(const std::string& name, CpuLevel level) {
    for (const backend::DeviceInfo& info : list_devices(level))
        if (info.name == name) return info;
    return {};
}

// A loaded card does not keep the clock that its driver names: an H100 runs at 1.75 of 1.98 GHz.
constexpr double k_loaded_clock = 0.88;

// Fills in the bandwidths of an open device, measured now or before. The memories of devices of one make are equally fast; their
// links need not be.
void fill_rates(DeviceFacts& facts, const backend::Backend& device, CpuLevel level) {
    const std::string make = make_of(facts.name, level);
    facts.bytes_per_second = cached_number("memory-" + make, [&] { return measure_memory(device); });
    facts.link_bytes_per_second =
        cached_number(format_text("link-{}-{}", facts.name, make), [&] { return measure_link(device); });
    facts.is_measured = true;
    const backend::DeviceInfo info = info_of(facts.name, level);
    if (const auto card = find_card(info.description)) {
        facts.multiprocessor_hz = card->multiprocessor_hz;
        facts.compute_capability = card->compute_capability;
    } else {
        facts.multiprocessor_hz = k_loaded_clock * info.multiprocessor_hz;
    }
}

// A format is measured only if the model has at least this many bytes of it.
constexpr uint64_t k_min_bytes = uint64_t{64} << 20;
constexpr int64_t k_cols = 3072;  // a row of whole blocks in every format

}  // namespace

std::string make_of(const std::string& name, CpuLevel level) {
    return name.substr(0, name.find(':')) + "-" + info_of(name, level).description;
}

std::shared_ptr<const backend::Backend> open_measured(const std::string& name, std::string_view text,
                                                      const Threads& threads, CpuLevel level) {
    try {
        return open_device(name, threads, level);
    } catch (const Error& error) {
        if (error.status() != Status::not_found && error.status() != Status::unsupported) throw;
        fail(Status::invalid,
             "device '{}' has no bandwidth and is not usable here ({}); a device that need not exist is "
             "described as "
             "NAME=MEMORY,BANDWIDTH[,pcie=BANDWIDTH], as in cuda:0=96GiB,1790GB/s,pcie=50GB/s",
             text, error.what());
    }
}

double cached_number(const std::string& key, const std::function<double()>& measure,
                     const NumberRange& range) {
    const std::string path = cache_path(key);
    if (const std::optional<double> known = path.empty() ? std::nullopt : read_number(path, range))
        return *known;
    const double number = std::round(measure());
    if (path.empty()) return number;
    std::error_code ignored;
    std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ignored);
    std::ofstream(path) << format_text("{:.0f}\n", number);
    return number;
}

HostFacts measured_host(int32_t n_threads) {
    const double bandwidth =
        cached_number(format_text("bandwidth-{}", n_threads), [&] { return measure_bandwidth(n_threads); });
    return {std::min(available_memory_bytes(), total_memory_bytes()), bandwidth, true, {}};
}

void measure_rates(HostFacts& host, std::span<const weights::WeightSpec> weights, const Threads& threads,
                   CpuLevel level, const Logger& log) {
    const std::shared_ptr<const backend::HostDevice> backend = make_backend("cpu", threads, level);
    std::array<uint64_t, k_format_count> bytes = {};
    std::vector<const weights::WeightSpec*> specs;
    for (const weights::WeightSpec& weight : weights) {
        specs.push_back(&weight);
        if (weight.use == weights::Use::product) bytes[static_cast<size_t>(weight.format)] += weight.bytes();
    }
    const weights::UnpackedFormats unpacked =
        weights::choose_unpacked(*backend, specs, weights::Expand::automatic, log);
    for (const FormatTraits& entry : all_formats()) {
        if (bytes[static_cast<size_t>(entry.format)] < k_min_bytes) continue;
        const Format stored = unpacked.stored_format(entry.format);
        const std::string key = format_text("product-{}-{}-{}", traits(stored).name, to_string(level),
                                            threads.decode->n_threads());
        const double rate = cached_number(key, [&] { return weights::product_rate(*backend, stored); });
        // An unpacked row has more bytes than the row in the checkpoint.
        const double part = static_cast<double>(row_bytes(entry.format, k_cols)) /
                            static_cast<double>(row_bytes(stored, k_cols));
        host.rates.push_back({entry.format, rate * part});
    }
}

void complete_device(DeviceFacts& facts, std::string_view text, const Threads& threads, CpuLevel level) {
    if (facts.memory_bytes > 0 && facts.bytes_per_second > 0.0) return;
    const std::shared_ptr<const backend::Backend> device = open_measured(facts.name, text, threads, level);
    facts.is_unified = device->shares_host_memory();
    if (facts.memory_bytes == 0) {
        facts.memory_bytes = device->available_bytes();
        if (facts.is_unified)
            facts.memory_bytes = unified_memory_of_machine(facts.memory_bytes, total_memory_bytes());
    }
    if (facts.bytes_per_second == 0.0) fill_rates(facts, *device, level);
}

bool measure_machine(Machine& machine, int32_t n_threads, CpuLevel level, const Logger& log) {
    std::vector<DeviceFacts> devices = machine.devices;
    for (size_t d = 0; d < devices.size(); ++d) {
        const backend::Backend& device = *machine.backends[d];
        try {
            fill_rates(devices[d], device, level);
        } catch (const Error& error) {
            log.info(
                "{}: its bandwidth is not known, so experts are placed without it, and prompts copy none: {}",
                device.name(), error.what());
            return false;
        }
    }
    machine.devices = std::move(devices);
    const uint64_t memory = machine.host.memory_bytes;
    machine.host = measured_host(n_threads);
    machine.host.memory_bytes = memory;
    return true;
}

}  // namespace minim::placement
