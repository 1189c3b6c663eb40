// SPDX-License-Identifier: Apache-2.0
#include "placement/measure_device.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <memory>
#include <utility>

#include "backend/backend.h"
#include "base/error.h"
#include "base/format_text.h"
#include "placement/devices.h"
#include "placement/predict.h"

namespace minim::placement {
namespace {

constexpr uint64_t k_most_copied_bytes = uint64_t{256} << 20;
constexpr uint64_t k_least_copied_bytes = uint64_t{64} << 10;
constexpr double k_long_copy_seconds = 5e-3;
constexpr int k_copies = 5;
// Rows of the largest step that anybody computes a prompt in.
constexpr int64_t k_most_rows = 8192;

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

// Measures the bandwidths of the device's memory (a copy reads and writes each byte) and of the link.
std::vector<double> measure(const backend::Backend& device) {
    constexpr const char* k_what = "measuring bandwidths";
    const uint64_t most = std::min(k_most_copied_bytes, device.available_bytes() / 4);
    const std::unique_ptr<backend::Memory> from = device.allocate(most, k_what);
    const std::unique_ptr<backend::Memory> to = device.allocate(most, k_what);
    const std::unique_ptr<backend::Memory> staging = device.allocate_staging(most, k_what);
    std::fill_n(staging->data(), most, std::byte{1});
    // Find a size that takes long enough to measure: a slow link reaches it with few bytes.
    uint64_t bytes = std::min(k_least_copied_bytes, most);
    while (bytes < most &&
           seconds_of([&] { device.write(from->data(), staging->data(), bytes); }) < k_long_copy_seconds)
        bytes = std::min(4 * bytes, most);
    const double link = rate_of(bytes, [&] { device.write(from->data(), staging->data(), bytes); });
    const double memory = rate_of(2 * most, [&] { device.copy(to->data(), from->data(), most); });
    return {memory, link};
}

std::shared_ptr<const backend::Backend> opened(const std::string& name, std::string_view text,
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

std::string description_of(const std::string& name, CpuLevel level) {
    for (const backend::DeviceInfo& info : list_devices(level))
        if (info.name == name) return info.description;
    return {};
}

// Fills in the bandwidths of an open device, measured now or before.
void fill_rates(DeviceFacts& facts, const backend::Backend& device, CpuLevel level) {
    const std::string description = description_of(facts.name, level);
    const std::vector<double> rates = cached_numbers(format_text("device-{}-{}", facts.name, description), 2,
                                                     [&] { return measure(device); });
    facts.bytes_per_second = rates[0];
    facts.link_bytes_per_second = rates[1];
    facts.is_measured = true;
}

// Returns the facts of an open device but for its memory.
DeviceFacts facts_of(const backend::Backend& device, CpuLevel level) {
    // "cuda:0 (exact)" is the device cuda:0.
    DeviceFacts facts = {.name = std::string(device.name().substr(0, device.name().find(' ')))};
    fill_rates(facts, device, level);
    return facts;
}

}  // namespace

void complete_device(DeviceFacts& facts, std::string_view text, const Threads& threads, CpuLevel level) {
    if (facts.memory_bytes > 0 && facts.bytes_per_second > 0.0) return;
    const std::shared_ptr<const backend::Backend> device = opened(facts.name, text, threads, level);
    if (facts.memory_bytes == 0) facts.memory_bytes = device->available_bytes();
    if (facts.bytes_per_second == 0.0) fill_rates(facts, *device, level);
}

std::optional<MachineRates> measured_rates(std::span<const std::shared_ptr<const backend::Backend>> devices,
                                           int32_t n_threads, CpuLevel level, const Logger& log) {
    MachineRates rates;
    std::map<std::string, double> bandwidths;  // by description
    for (const auto& device : devices) {
        try {
            DeviceFacts facts = facts_of(*device, level);
            // The memories of devices of one make are equally fast; their links need not be.
            facts.bytes_per_second =
                bandwidths.emplace(description_of(facts.name, level), facts.bytes_per_second).first->second;
            rates.devices.push_back(std::move(facts));
        } catch (const Error& error) {
            log.info("{}: experts are placed without its bandwidth, which is not known: {}", device->name(),
                     error.what());
            return std::nullopt;
        }
    }
    rates.host = measured_host(n_threads);
    return rates;
}

runtime::StreamRule measured_stream_rule(const backend::Backend& device, const model::Config& config,
                                         double expert_bytes, int32_t n_threads, CpuLevel level,
                                         const Logger& log) {
    try {
        const DeviceFacts facts = facts_of(device, level);
        const HostFacts host = measured_host(n_threads);
        runtime::StreamRule rule = stream_rule(facts, host, config, expert_bytes, k_most_rows);
        // Round: numbers from the cache have fewer digits than numbers that were just measured.
        rule.break_even_slots = std::round(rule.break_even_slots * 16.0) / 16.0;
        return rule;
    } catch (const Error& error) {
        log.info("{}: prompts copy no experts to it, because its bandwidth is not known: {}", device.name(),
                 error.what());
        return {};
    }
}

}  // namespace minim::placement
