// SPDX-License-Identifier: Apache-2.0
// What the parts of a GPU reach that the design of kernels counts on: each figure beside the expected one. Not a part of the library.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>

namespace minim::probe {

struct Device {
    int n_multiprocessors = 0;
    int capability = 0;              // times 10
    int max_shared_bytes = 0;        // of a block
    double bytes_per_second = 0.0;   // nominal, of its memory
    double cycles_per_second = 0.0;  // of a multiprocessor, as the device reports its clock
    bool has_bulk_copies() const { return capability >= 90; }
};
Device open_device();

// Prints a figure, what is expected, and their ratio. Figures of times are better if they are smaller.
enum class Better : uint8_t { larger, smaller };
void report(std::string_view what, double figure, std::string_view unit, double expected, Better better);
void leave_out(std::string_view what, std::string_view why);

// Throws with the name of what failed.
inline void check(cudaError_t error, const char* what) {
    if (error != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(error));
}

// Returns the seconds of the device's work that `start` starts in the stream: the shortest of some rounds.
double seconds_of(const std::function<void(cudaStream_t)>& start);

// Memory of the device, or of the host where both sides see it; all zeros.
template <class X>
class Memory {
  public:
    explicit Memory(int64_t count, bool is_of_host = false) : is_of_host_(is_of_host) {
        const auto bytes = static_cast<size_t>(count) * sizeof(X);
        if (is_of_host) {
            check(cudaHostAlloc(reinterpret_cast<void**>(&data_), bytes, cudaHostAllocMapped),
                  "pinned memory");
            for (size_t i = 0; i < bytes; ++i) reinterpret_cast<volatile char*>(data_)[i] = 0;
        } else {
            check(cudaMalloc(reinterpret_cast<void**>(&data_), bytes), "device memory");
            check(cudaMemset(data_, 0, bytes), "device memory");
        }
    }
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;
    ~Memory() {
        if (is_of_host_) {
            cudaFreeHost(data_);
        } else {
            cudaFree(data_);
        }
    }
    X* data() const { return data_; }

  private:
    X* data_ = nullptr;
    bool is_of_host_;
};

// Bulk copies into shared memory, and the same with warps that wait for them.
void probe_reading(const Device& device);
// Blocks that pass data to all blocks within a kernel.
void probe_boards(const Device& device);
// The borders between kernels.
void probe_borders(const Device& device);
// Round trips between a kernel and a thread of the host.
void probe_host(const Device& device);
// Decoders of packed weights, from shared memory.
void probe_decoders(const Device& device);
// Reads of random words of shared memory.
void probe_random_words(const Device& device);
// Tensor cores, alone and fed from shared memory.
void probe_tensor_cores(const Device& device);
// A product of the vendor's library.
void probe_library(const Device& device);

}  // namespace minim::probe
