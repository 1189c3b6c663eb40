// SPDX-License-Identifier: Apache-2.0
// Whole models on ranks whose devices are connected: several ranks of one GPU.
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "gpu/models.h"
#include "gpu/nccl_of_tests.h"
#include "gpu/support.h"
#include "placement/ranks.h"
#include "support/catch.h"

namespace minim::test {
namespace {

using backend::Arithmetic;

// A model on ranks, with what was logged.
struct RankedModel {
    std::unique_ptr<std::string> log = std::make_unique<std::string>();
    std::unique_ptr<Logger> logger = std::make_unique<Logger>();
    placement::RankDevices devices;
    std::shared_ptr<const model::Model> model;
};

RankedModel open_on_ranks(const std::string& path, const placement::ParallelRequest& request, int64_t n,
                          Arithmetic arithmetic) {
    RankedModel ranked;
    for (int64_t r = 0; r < n; ++r) ranked.devices.push_back(cuda::make_cuda_backend(0, arithmetic));
    ranked.logger->set([](void* text, int32_t,
                          const char* line) { static_cast<std::string*>(text)->append(line).append("\n"); },
                       ranked.log.get(), LogLevel::info);
    const placement::RankOptions ranks = {
        .request = request, .devices = ranked.devices, .log = ranked.logger.get()};
    model::OpenOptions options;
    const model::Model::Place place = placement::place_on_ranks(ranks, options);
    ranked.model = std::make_shared<const model::Model>(path, place, options, *ranked.logger);
    return ranked;
}

// Returns the largest difference, in proportion to the largest logit.
double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
    double largest = 0;
    double difference = 0;
    for (size_t i = 0; i < a.size(); ++i) {
        largest = std::max(largest, std::abs(static_cast<double>(b[i])));
        difference = std::max(difference, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
    }
    return difference / largest;
}

bool have_same_bits(const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace

TEST_CASE("gpu links: a model on ranks gives nearly one rank's logits, and repeats recorded steps") {
    if (!has_devices(1) || !prepare_nccl(2)) return;
    const std::string path = std::string(MINIM_EXAMPLE_MODELS) + "/minim-tiny-q8_0.gguf";
    const auto alone = open_on(path, {0}, Arithmetic::fast);
    const std::vector<float> expected = logits(alone, Format::f16, 8, 8);
    for (const placement::ParallelRequest& request :
         {placement::ParallelRequest{.tensor = 2}, placement::ParallelRequest{.experts = 2}}) {
        INFO("tensor " << request.tensor << ", experts " << request.experts);
        const RankedModel ranked = open_on_ranks(path, request, 2, Arithmetic::fast);
        INFO(*ranked.log);
        CHECK(ranked.log->find("sums over 2 ranks by NCCL") != std::string::npos);
        CHECK(ranked.log->find("taken for up to 64 KiB") != std::string::npos);
        CHECK(largest_difference(logits(ranked.model, Format::f16, 8, 8), expected) < 0.05);
        const std::vector<float> one_by_one = logits(ranked.model, Format::f16, 8, 1);
        CHECK(largest_difference(one_by_one, expected) < 0.05);
        CHECK(have_same_bits(logits(ranked.model, Format::f16, 8, 1), one_by_one));
        for (const auto& device : ranked.devices) {
            CHECK(device->step_counts().repeated > 0);
            CHECK(device->step_counts().failed == 0);
        }
    }
}

TEST_CASE("gpu links: in deterministic arithmetic a model has the same bits with NCCL and without it") {
    if (!has_devices(1) || !prepare_nccl(2)) return;
    const std::string path = std::string(MINIM_EXAMPLE_MODELS) + "/minim-tiny-q8_0.gguf";
    const placement::ParallelRequest request = {.tensor = 2};
    const RankedModel with = open_on_ranks(path, request, 2, Arithmetic::deterministic);
    const std::vector<float> expected = logits(with.model, Format::f16, 8, 5);
    ::setenv("MINIM_NCCL_LIBRARY", "/nowhere/libnccl.so.2", 1);
    const RankedModel without = open_on_ranks(path, request, 2, Arithmetic::deterministic);
    ::unsetenv("MINIM_NCCL_LIBRARY");
    INFO(*without.log);
    CHECK(without.log->find("nvidia-nccl-cu13") != std::string::npos);
    CHECK(have_same_bits(logits(without.model, Format::f16, 8, 8), expected));
}

}  // namespace minim::test
