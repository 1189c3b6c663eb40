// SPDX-License-Identifier: Apache-2.0
#include "models.h"

#include <cmath>
#include <map>
#include <tuple>

#include <nlohmann/json.hpp>

#include "placement/backends.h"
#include "support/files.h"

namespace minim::test {
namespace {

const Logger k_silent;

nlohmann::json read_json(const std::string& path) {
    return nlohmann::json::parse(text_of(path));
}

}  // namespace

std::string golden_path(const std::string& name) {
    return std::string(MINIM_TEST_DATA) + "/golden/" + name;
}

const std::vector<GoldenPrompt>& golden_prompts() {
    static const std::vector<GoldenPrompt> prompts = [] {
        std::vector<GoldenPrompt> loaded;
        const auto index = read_json(golden_path("index.json"));
        for (const std::string name : index["prompts"]) {
            const auto prompt = read_json(golden_path("prompts/" + name + ".json"));
            loaded.push_back({name, prompt["ids"], prompt["greedy_ids"], prompt["greedy_margins"]});
        }
        return loaded;
    }();
    return prompts;
}

double golden_perplexity(const std::string& format) {
    return read_json(golden_path("index.json"))["formats"][format]["perplexity"];
}

std::shared_ptr<const model::Model> stored_model(const StoredModel& stored, const std::string& backend,
                                                 int n_threads, CpuLevel level) {
    static std::map<std::tuple<std::string, std::string, int, CpuLevel>, std::shared_ptr<const model::Model>>
        models;
    auto& model = models[{stored.file, backend, n_threads, level}];
    if (!model) {
        model = std::make_shared<const model::Model>(
            std::string(stored.folder) + "/" + stored.file,
            placement::make_backend(backend, std::make_shared<ThreadPool>(n_threads), level),
            model::OpenOptions{}, k_silent);
    }
    return model;
}

engine::Session make_session(const std::shared_ptr<const model::Model>& model, Format kv, int64_t n_ubatch) {
    engine::SessionParams params;
    params.n_context = 512;
    params.k_format = kv;
    params.v_format = kv;
    params.n_ubatch = n_ubatch;
    return {model, params, k_silent};
}

std::vector<float> all_logits(engine::Session& session, const std::vector<int32_t>& ids) {
    std::vector<float> logits(ids.size() * static_cast<size_t>(session.model().config().n_vocab));
    session.eval(ids, true, logits, nullptr);
    return logits;
}

double relative_rms(const float* actual, const float* expected, size_t count) {
    double difference = 0.0;
    double square = 0.0;
    for (size_t i = 0; i < count; ++i) {
        const double d = static_cast<double>(actual[i]) - static_cast<double>(expected[i]);
        difference += d * d;
        square += static_cast<double>(expected[i]) * static_cast<double>(expected[i]);
    }
    return std::sqrt(difference / square);
}

}  // namespace minim::test
