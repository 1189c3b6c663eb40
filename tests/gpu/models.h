// SPDX-License-Identifier: Apache-2.0
// Whole models on CUDA devices, and the logits of a session of theirs.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "cuda/cuda_backend.h"
#include "cuda/runtime.h"
#include "engine/session.h"
#include "model/model.h"
#include "placement/backends.h"
#include "runtime/placement.h"
#include "support/helpers.h"

namespace minim::test {

// Opens a model with the layers spread over devices; on the host where there are none.
inline std::shared_ptr<const model::Model> open_on(const std::string& path, std::vector<int32_t> devices,
                                                   backend::Arithmetic arithmetic) {
    const Logger silent;
    const auto split = [&](const model::Config& config, std::span<const weights::WeightSpec>) {
        std::vector<runtime::Stage> stages;
        const auto n = static_cast<int64_t>(devices.size());
        for (int64_t i = 0; i < n; ++i)
            stages.push_back({cuda::make_cuda_backend(devices[static_cast<size_t>(i)], arithmetic),
                              config.n_layer * (i + 1) / n - config.n_layer * i / n});
        if (devices.empty()) {
            const auto threads = std::make_shared<const ThreadPool>(1);
            const char* name = arithmetic == backend::Arithmetic::exact ? "reference" : "cpu";
            stages.push_back({placement::make_backend(name, threads, active_cpu_level()), config.n_layer});
        }
        return stages;
    };
    return std::make_shared<const model::Model>(path, split, model::OpenOptions{}, silent);
}

// Returns the logits of some_ids(count), given to a session in chunks, the first one of another size if that is not 0.
inline std::vector<float> logits(const std::shared_ptr<const model::Model>& model, Format kv, int64_t count,
                                 size_t chunk, size_t first_chunk = 0) {
    const Logger silent;
    engine::SessionParams params;
    params.n_context = 100;
    params.k_format = params.v_format = kv;
    engine::Session session(model, params, silent);
    const std::vector<int32_t> ids = some_ids(static_cast<size_t>(count));
    const auto n_vocab = static_cast<size_t>(model->config().n_vocab);
    std::vector<float> all(ids.size() * n_vocab);
    for (size_t at = 0, n = 0; at < ids.size(); at += n) {
        n = std::min(at == 0 && first_chunk > 0 ? first_chunk : chunk, ids.size() - at);
        session.eval(std::span(ids).subspan(at, n), true, std::span(all).subspan(at * n_vocab, n * n_vocab),
                     nullptr);
    }
    return all;
}

// Returns the folder of the models that are made when the tests are built. The environment variable MINIM_TEST_MODELS
// names another place to which they were copied.
inline std::string made_models() {
    const char* folder = std::getenv("MINIM_TEST_MODELS");
    return folder != nullptr ? folder : MINIM_TEST_MODELS;
}

inline const std::string k_models[] = {std::string(MINIM_EXAMPLE_MODELS) + "/minim-tiny-q8_0.gguf",
                                       std::string(MINIM_EXAMPLE_MODELS) + "/minim-tiny-mix-ik.gguf",
                                       made_models() + "/minim-tiny-bf16.gguf"};

}  // namespace minim::test
