// SPDX-License-Identifier: Apache-2.0
// Every operation of the CUDA backend at the model's shapes, beside the CPU and exact arithmetic on the same bytes.
//
//   gpu_selfcheck [--reduced] [FILTER]
//
// FILTER: runs only the cases whose name contains it. --reduced: small shapes, for emulated threads. Exit codes: 0 all
// well, 1 a case failed, 77 no usable GPU.
#include <cstdio>
#include <cstring>
#include <exception>
#include <string>
#include <thread>

#include "base/cpu_features.h"
#include "base/thread_pool.h"
#include "cuda/cuda_backend.h"
#include "cuda/runtime.h"
#include "gpu/selfcheck/report.h"
#include "gpu/selfcheck/rig.h"
#include "placement/backends.h"

namespace minim::selfcheck {
namespace {

backend::StepLimits limits_of(const Shapes& s) {
    return {.n_rows = s.most_rows(),
            .n_context = s.long_context,
            .hidden = s.hidden,
            .n_head = s.n_head,
            .n_head_kv = s.n_head_kv,
            .head_dim = s.head_dim,
            .n_expert = std::max(s.n_expert, s.n_route_expert),
            .n_expert_used = s.n_used,
            .expert_ff = s.expert_ff,
            .n_vocab = s.n_vocab};
}

int run(bool is_reduced, const std::string& filter) {
    const backend::DeviceInfo device = cuda::runtime::devices().front();
    if (!device.why_not.empty()) {
        std::printf("skipped: no usable CUDA device: %s\n", device.why_not.c_str());
        return 77;
    }
    const Shapes shapes = is_reduced ? reduced_shapes() : Shapes();
    const backend::StepLimits limits = limits_of(shapes);
    const auto n_threads = static_cast<int32_t>(std::max(1U, std::thread::hardware_concurrency()));
    const auto host =
        placement::make_backend("cpu", std::make_shared<const ThreadPool>(n_threads), active_cpu_level());
    backend::StepLimits few_rows = limits;  // of exact attention alone
    few_rows.n_rows = shapes.attend_rows.back();
    Rig rig = {shapes, Device(cuda::make_cuda_backend(0, backend::Arithmetic::fast), limits),
               Device(cuda::make_cuda_backend(0, backend::Arithmetic::exact), few_rows),
               Device(host, limits)};
    std::printf("%s %s beside %d threads of %s\n", device.name.c_str(), device.description.c_str(), n_threads,
                std::string(to_string(active_cpu_level())).c_str());
    Report report(filter);
    check_norm(rig, report);
    check_route(rig, report);
    check_top_k(rig, report);
    check_linear(rig, report);
    check_experts(rig, report);
    check_attend(rig, report);
    return report.finish() ? 0 : 1;
}

}  // namespace
}  // namespace minim::selfcheck

int main(int argc, char** argv) {
    bool is_reduced = false;
    std::string filter;
    for (int i = 1; i < argc; ++i) {
        if (std::strcmp(argv[i], "--reduced") == 0) {
            is_reduced = true;
        } else {
            filter = argv[i];
        }
    }
    try {
        return minim::selfcheck::run(is_reduced, filter);
    } catch (const std::exception& error) {
        std::printf("FAILED: %s\n", error.what());
        return 1;
    }
}
