// SPDX-License-Identifier: Apache-2.0
#include "placement/measure_device.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>

#include "backend/backend.h"
#include "base/error.h"
#include "base/format_text.h"
#include "placement/cards.h"
#include "placement/devices.h"

namespace minim::placement {
namespace {

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

// Fills in the bandwidths of an open device, measured now or before. The memories of devices of one make are equally fast; their
// links need not be.
void fill_rates(DeviceFacts& facts, const backend::Backend& device, CpuLevel level) {
    const std::string make =
        facts.name.substr(0, facts.name.find(':')) + "-" + description_of(facts.name, level);
    facts.bytes_per_second = cached_number("memory-" + make, [&] { return measure_memory(device); });
    facts.link_bytes_per_second =
        cached_number(format_text("link-{}-{}", facts.name, make), [&] { return measure_link(device); });
    facts.is_measured = true;
    if (const auto card = find_card(description_of(facts.name, level)))
        facts.multiprocessor_hz = card->multiprocessor_hz;
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
    for (const auto& device : devices) {
        // "cuda:0 (exact)" is the device cuda:0.
        DeviceFacts facts = {.name = std::string(device->name().substr(0, device->name().find(' ')))};
        try {
            fill_rates(facts, *device, level);
        } catch (const Error& error) {
            log.info(
                "{}: its bandwidth is not known, so experts are placed without it, and prompts copy none: {}",
                device->name(), error.what());
            return std::nullopt;
        }
        rates.devices.push_back(std::move(facts));
    }
    rates.host = measured_host(n_threads);
    return rates;
}

}  // namespace minim::placement
