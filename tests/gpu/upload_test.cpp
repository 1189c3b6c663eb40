// SPDX-License-Identifier: Apache-2.0
// Weights on their way to a CUDA device, whose streams read pinned memory as late as they may.
#include <cstring>
#include <vector>

#include "base/error.h"
#include "cuda/cuda_backend.h"
#include "engine/session.h"
#include "gpu/recorder.h"
#include "model/model.h"
#include "support/catch.h"
#include "support/helpers.h"
#include "weights/upload_ring.h"

namespace minim::test {

TEST_CASE("weights travel in as many pinned pieces at a time as there are, and all arrive") {
    using weights::UploadRing;
    std::vector<std::byte> source(9 * UploadRing::k_piece_bytes + 123);
    for (size_t i = 0; i < source.size(); ++i) source[i] = static_cast<std::byte>(i * 7 + i / 4096);
    for (const bool pins : {true, false}) {
        most_late_copies() = 0;
        const auto device = cuda::make_cuda_backend(0, backend::Arithmetic::fast);
        const auto memory = device->allocate(source.size(), "weights", backend::MemoryUse::weights);
        std::vector<std::byte> arrived(source.size());
        refuses_pinned() = !pins;
        {
            UploadRing ring(*device);
            for (size_t at = 0; at < source.size(); at += UploadRing::k_piece_bytes) {
                const size_t count = std::min<size_t>(UploadRing::k_piece_bytes, source.size() - at);
                std::memcpy(ring.room(), source.data() + at, count);
                ring.send(memory->data() + at, count);
            }
            ring.finish();
        }
        refuses_pinned() = false;
        device->read(arrived.data(), memory->data(), arrived.size());
        CHECK(arrived == source);
        CHECK(most_late_copies() == (pins ? UploadRing::k_pieces : 0));
    }
}

TEST_CASE("a budget that leaves next to nothing beside the weights is enough to load them") {
    const Logger silent;
    const std::string path = std::string(MINIM_EXAMPLE_MODELS) + "/minim-tiny-q8_0.gguf";
    const auto open = [&](uint64_t budget_bytes) {
        return std::make_shared<const model::Model>(
            path, cuda::make_cuda_backend(0, backend::Arithmetic::fast, budget_bytes), model::OpenOptions{},
            silent);
    };
    const uint64_t weights = open(backend::k_no_budget)->weight_bytes()[0].total;
    const auto model = open(weights + (64 << 10));
    CHECK(model->backend().memory().used() == weights);
    const uint64_t tables = static_cast<uint64_t>(model->config().n_layer * model->config().n_expert) *
                            sizeof(backend::ExpertPlace);  // of experts, which follow the weights
    expect_error(Status::out_of_device_memory, "bytes for weights needed",
                 [&] { open(weights - tables - 1); });
    expect_error(Status::out_of_device_memory, "bytes for packing weights needed",
                 [&] { open(weights + 2048); });
    engine::SessionParams params;
    params.n_context = 100;
    expect_error(Status::out_of_device_memory, "of the budget of",
                 [&] { engine::Session(model, params, silent); });
}

}  // namespace minim::test
