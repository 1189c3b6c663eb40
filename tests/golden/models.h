// SPDX-License-Identifier: Apache-2.0
// The stored models and their goldens, for the tests of this folder.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/cpu_features.h"
#include "base/log.h"
#include "engine/session.h"
#include "model/model.h"

namespace minim::test {

struct GoldenPrompt {
    std::string name;
    std::vector<int32_t> ids;
    std::vector<int32_t> greedy_ids;
    std::vector<float> greedy_margins;  // best minus second-best logit of each step
};

// A stored model file or folder and the name its goldens go by.
struct StoredModel {
    const char* golden;  // "q8_0"
    const char* file;    // relative to the folder
    const char* folder;
};

inline constexpr StoredModel k_stored_models[] = {
    {"bf16", "minim-tiny-bf16.gguf", MINIM_TEST_MODELS},
    {"q8_0", "minim-tiny-q8_0.gguf", MINIM_EXAMPLE_MODELS},
    {"q4_k_m", "minim-tiny-q4_k_m.gguf", MINIM_TEST_DATA "/models"},
    {"mix-k", "minim-tiny-mix-k.gguf", MINIM_TEST_DATA "/models"},
    {"mix-iq", "minim-tiny-mix-iq-00001-of-00003.gguf", MINIM_TEST_DATA "/models"},
    {"mix-ik", "minim-tiny-mix-ik.gguf", MINIM_EXAMPLE_MODELS},
    {"fp8", "minim-tiny-fp8", MINIM_TEST_MODELS},
    {"nvfp4", "minim-tiny-nvfp4", MINIM_TEST_MODELS},
    {"awq", "minim-tiny-awq", MINIM_TEST_MODELS},
};

std::string golden_path(const std::string& name);
const std::vector<GoldenPrompt>& golden_prompts();  // in the order of index.json
double golden_perplexity(const std::string& format);

// Opened once a process and kept.
std::shared_ptr<const model::Model> stored_model(const StoredModel& stored, const std::string& backend,
                                                 int n_threads = 2, CpuLevel level = active_cpu_level());

engine::Session make_session(const std::shared_ptr<const model::Model>& model, Format kv,
                             int64_t n_ubatch = 512);

// Logits of every position, [ids.size(), n_vocab].
std::vector<float> all_logits(engine::Session& session, const std::vector<int32_t>& ids);

// Root mean square of the difference over that of `expected`.
double relative_rms(const float* actual, const float* expected, size_t count);

}  // namespace minim::test
