// SPDX-License-Identifier: Apache-2.0
// Ranks of one GPU whose devices are connected, each on a thread.
#pragma once

#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "cuda/cuda_backend.h"
#include "runtime/group_channel.h"
#include "runtime/host_group.h"
#include "runtime/thread_transport.h"

namespace minim::test {

struct LinkedRank {
    const backend::Backend& device;
    backend::Scratch& scratch;
    backend::GroupLink& link;
    backend::Group& group;
    backend::GroupChannel& channel;

    int32_t rank() const { return group.rank(); }

    // Sums host data on all ranks, with one way of the link.
    std::vector<float> sum(std::vector<float> data, size_t way) const {
        link.use_way(way);
        const std::unique_ptr<backend::Memory> memory = put(data);
        auto* const floats = reinterpret_cast<float*>(memory->data());
        group.sum(scratch, floats, std::ssize(data));
        get(data, floats);
        return data;
    }
    std::unique_ptr<backend::Memory> put(const std::vector<float>& data) const {
        auto memory = device.allocate(data.size() * sizeof(float), "a test");
        device.write(memory->data(), reinterpret_cast<const std::byte*>(data.data()), memory->size());
        return memory;
    }
    void get(std::vector<float>& data, const float* from) const {
        device.synchronize(scratch);
        device.read(reinterpret_cast<std::byte*>(data.data()), reinterpret_cast<const std::byte*>(from),
                    data.size() * sizeof(float));
    }
};

struct LinkOptions {
    backend::Arithmetic arithmetic = backend::Arithmetic::fast;
    std::chrono::milliseconds timeout{30'000};
    bool is_one_process = true;  // false: ranks are told that they are not
};

inline constexpr backend::GroupLimits k_link_limits = {.n_sum = 300'000, .hidden = 96, .n_gather = 10'000};

// What became of the ranks.
struct LinkedEnd {
    std::vector<std::optional<Error>> errors;
    std::vector<std::string> remarks;  // of connecting
    std::vector<bool> is_linked;
};

// Runs a function for each rank that is connected. A rank that throws ends the waits of all, as ranks of a model do.
inline LinkedEnd run_linked(int32_t n, const LinkOptions& options,
                            const std::function<void(LinkedRank&)>& rank) {
    auto ends = runtime::connect_threads(n);
    LinkedEnd end = {.errors = std::vector<std::optional<Error>>(n),
                     .remarks = std::vector<std::string>(n),
                     .is_linked = std::vector<bool>(n)};
    std::vector<std::unique_ptr<backend::Backend>> devices;
    std::vector<std::unique_ptr<runtime::TransportChannel>> channels;
    for (int32_t r = 0; r < n; ++r) {
        devices.push_back(cuda::make_cuda_backend(0, options.arithmetic));
        channels.push_back(
            std::make_unique<runtime::TransportChannel>(*ends[r], options.is_one_process, options.timeout));
    }
    std::vector<std::unique_ptr<backend::GroupLink>> links(n);
    std::vector<char> is_linked(n);
    std::vector<std::thread> threads;
    for (int32_t r = 0; r < n; ++r)
        threads.emplace_back([&, r] {
            try {
                const backend::Backend& device = *devices[r];
                links[r] = device.connect(*channels[r], end.remarks[r]);
                is_linked[r] = links[r] != nullptr;
                if (!links[r]) return;
                const auto scratch = device.reserve({});
                const auto group = runtime::make_group(device, *ends[r], links[r].get(), k_link_limits);
                LinkedRank linked = {device, *scratch, *links[r], *group, *channels[r]};
                rank(linked);
            } catch (...) {
                end.errors[r].emplace(current_error());
                ends[r]->abandon(*end.errors[r]);
                if (links[r]) links[r]->end_waits();
            }
        });
    for (std::thread& thread : threads) thread.join();
    for (int32_t r = 0; r < n; ++r) end.is_linked[r] = is_linked[r] != 0;
    return end;
}

}  // namespace minim::test
