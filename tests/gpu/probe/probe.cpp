// SPDX-License-Identifier: Apache-2.0
#include "gpu/probe/probe.h"

#include <algorithm>
#include <cstdio>
#include <exception>

#include "cuda/blas.h"
#include "format/format.h"

namespace minim::probe {
namespace {

constexpr int k_rounds = 5;

int attribute(cudaDeviceAttr which) {
    int value = 0;
    check(cudaDeviceGetAttribute(&value, which, 0), "a device's attribute");
    return value;
}

}  // namespace

Device open_device() {
    Device device;
    device.n_multiprocessors = attribute(cudaDevAttrMultiProcessorCount);
    device.capability =
        10 * attribute(cudaDevAttrComputeCapabilityMajor) + attribute(cudaDevAttrComputeCapabilityMinor);
    device.max_shared_bytes = attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin);
    // Both rates in kHz; the memory transfers twice a cycle.
    device.bytes_per_second = 2e3 * attribute(cudaDevAttrMemoryClockRate) *
                              (static_cast<double>(attribute(cudaDevAttrGlobalMemoryBusWidth)) / 8.0);
    device.cycles_per_second = 1e3 * attribute(cudaDevAttrClockRate);
    return device;
}

void report(std::string_view what, double figure, std::string_view unit, double expected, Better better) {
    const double ratio = better == Better::larger ? figure / expected : expected / figure;
    std::printf("%-58s %8.2f %-10s [%.2f] %5.2f\n", std::string(what).c_str(), figure,
                std::string(unit).c_str(), expected, ratio);
    std::fflush(stdout);
}

void leave_out(std::string_view what, std::string_view why) {
    std::printf("%-58s left out: %s\n", std::string(what).c_str(), std::string(why).c_str());
}

double seconds_of(const std::function<void(cudaStream_t)>& start) {
    cudaStream_t stream = nullptr;
    cudaEvent_t begin = nullptr;
    cudaEvent_t end = nullptr;
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "a stream");
    check(cudaEventCreate(&begin), "an event");
    check(cudaEventCreate(&end), "an event");
    float best = 0.0F;
    for (int round = 0; round <= k_rounds; ++round) {  // the first one is not counted
        check(cudaEventRecord(begin, stream), "an event");
        start(stream);
        check(cudaEventRecord(end, stream), "an event");
        check(cudaStreamSynchronize(stream), "a kernel of the probe");
        float milliseconds = 0.0F;
        check(cudaEventElapsedTime(&milliseconds, begin, end), "an event");
        if (round > 0) best = round == 1 ? milliseconds : std::min(best, milliseconds);
    }
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
    cudaStreamDestroy(stream);
    return static_cast<double>(best) * 1e-3;
}

void probe_library(const Device&) {
    constexpr const char* k_what = "the library, F16 8192 x 3072 by 2,048 rows";
    std::string why_not;
    const auto library = cuda::blas::open(0, why_not);
    if (library == nullptr) return leave_out(k_what, why_not);
    constexpr uint64_t k_workspace = uint64_t{8} << 20;
    const cuda::blas::Problem problem = {Format::f16, 8192, 3072, 2048};
    const auto plan = library->plan(problem, k_workspace);
    if (plan == nullptr) return leave_out(k_what, "it has no way for this shape");
    const Memory<uint16_t> weight(problem.rows * problem.cols);
    const Memory<uint16_t> x(problem.n * problem.cols);
    const Memory<float> y(problem.n * problem.rows);
    const Memory<char> workspace(k_workspace);
    const double seconds = seconds_of([&](cudaStream_t stream) {
        const char* error =
            plan->multiply({weight.data(), x.data(), y.data(), 1.0F, false}, workspace.data(), stream);
        if (error != nullptr) throw std::runtime_error(error);
    });
    const double operations = 2.0 * static_cast<double>(problem.rows * problem.cols * problem.n);
    report(k_what, operations / seconds * 1e-12, "TFLOP/s", 600, Better::larger);
}

}  // namespace minim::probe

int main() {
    using namespace minim::probe;
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) {
        std::printf("skipped: no CUDA device\n");
        return 77;
    }
    std::printf("%-58s %8s %-10s [expected on an H200] ratio, 1 or more is as expected\n", "", "figure", "");
    try {
        const Device device = open_device();
        std::printf("%d multiprocessors, %.0f MHz, sm_%d, %.0f GB/s\n", device.n_multiprocessors,
                    device.cycles_per_second * 1e-6, device.capability, device.bytes_per_second * 1e-9);
        probe_reading(device);
        probe_boards(device);
        probe_borders(device);
        probe_decoders(device);
        probe_random_words(device);
        probe_tensor_cores(device);
        probe_host(device);
        probe_library(device);
    } catch (const std::exception& error) {
        std::printf("error: %s\n", error.what());
        return 1;
    }
    return 0;
}
