// SPDX-License-Identifier: Apache-2.0
#include "support.h"

#include <algorithm>
#include <cstring>

#include "kv/sequence.h"
#include "model/minimax_m2.h"
#include "placement/backends.h"
#include "runtime/forward_pass.h"
#include "runtime/step_space.h"

namespace minim::test {

std::unique_ptr<const model::Model> open_model(const std::string& path, std::string_view backend,
                                               const Logger* log) {
    const Logger silent;
    return std::make_unique<const model::Model>(
        path, placement::make_backend(backend, std::make_shared<ThreadPool>(2), active_cpu_level()),
        model::OpenOptions{}, log == nullptr ? silent : *log);
}

std::unique_ptr<const model::Model> open_with(const std::string& path, const model::OpenOptions& options,
                                              const Logger& log) {
    return std::make_unique<const model::Model>(
        path, placement::make_backend("cpu", std::make_shared<ThreadPool>(2), active_cpu_level()), options,
        log);
}

std::unique_ptr<const model::Model> open_model(const TinyModel& model, const TemporaryFolder& folder,
                                               std::string_view backend) {
    const std::string path = folder / "tiny.gguf";
    model.write(path);
    return open_model(path, backend);
}

std::vector<float> logits_of(const model::Model& model, std::span<const int32_t> ids, Format kv,
                             size_t chunk) {
    const model::Config& config = model.config();
    const auto n = static_cast<int64_t>(ids.size());
    const auto n_vocab = static_cast<size_t>(config.n_vocab);
    kv::Sequence cache =
        kv::Sequence::alone(backend::kv_layout_of(model::shape_of(config), config.n_layer, kv, kv), n);
    if (chunk == 0) chunk = ids.size();
    runtime::StepSpace space(model.backend(), model::shape_of(config), static_cast<int64_t>(chunk), n);
    std::vector<float> logits(ids.size() * n_vocab);
    std::vector<runtime::StepRow> rows;
    for (size_t at = 0; at < ids.size(); at += chunk) {
        rows.clear();
        for (size_t i = at; i < std::min(at + chunk, ids.size()); ++i) {
            rows.push_back({ids[i], {&cache.view(), static_cast<int64_t>(i)}, true});
        }
        model.forward().step(rows, space, logits.data() + at * n_vocab, nullptr);
    }
    return logits;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace minim::test
