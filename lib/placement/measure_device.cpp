// SPDX-License-Identifier: Apache-2.0
#include "placement/measure_device.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>

#include "backend/backend.h"
#include "base/error.h"
#include "base/format_text.h"
#include "placement/devices.h"

namespace minim::placement {
namespace {

constexpr uint64_t k_most_copied_bytes = uint64_t{256} << 20;
constexpr int k_copies = 5;

// Bytes a second of the fastest round.
template <typename Copy>
double rate_of(uint64_t bytes, const Copy& copy) {
    double best = 0.0;
    for (int round = 0; round < k_copies; ++round) {
        const auto start = std::chrono::steady_clock::now();
        copy();
        const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
        best = std::max(best, static_cast<double>(bytes) / std::max(taken.count(), 1e-9));
    }
    return best;
}

// Of the memory, which a copy reads and writes, and of the link.
std::vector<double> measure(const backend::Backend& device) {
    constexpr const char* k_what = "measuring bandwidths";
    const uint64_t bytes = std::min(k_most_copied_bytes, device.available_bytes() / 4);
    const std::unique_ptr<backend::Memory> from = device.allocate(bytes, k_what);
    const std::unique_ptr<backend::Memory> to = device.allocate(bytes, k_what);
    const std::unique_ptr<backend::Memory> staging = device.allocate_staging(bytes, k_what);
    std::fill_n(staging->data(), bytes, std::byte{1});
    const double link = rate_of(bytes, [&] { device.write(from->data(), staging->data(), bytes); });
    const double memory = rate_of(2 * bytes, [&] { device.copy(to->data(), from->data(), bytes); });
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

}  // namespace

void complete_device(DeviceFacts& facts, std::string_view text, const Threads& threads, CpuLevel level) {
    if (facts.memory_bytes > 0 && facts.bytes_per_second > 0.0) return;
    const std::shared_ptr<const backend::Backend> device = opened(facts.name, text, threads, level);
    if (facts.memory_bytes == 0) facts.memory_bytes = device->available_bytes();
    if (facts.bytes_per_second > 0.0) return;
    std::string description;
    for (const backend::DeviceInfo& info : list_devices(level))
        if (info.name == facts.name) description = info.description;
    const std::vector<double> rates = cached_numbers(format_text("device-{}-{}", facts.name, description), 2,
                                                     [&] { return measure(*device); });
    facts.bytes_per_second = rates[0];
    facts.link_bytes_per_second = rates[1];
    facts.is_measured = true;
}

}  // namespace minim::placement
