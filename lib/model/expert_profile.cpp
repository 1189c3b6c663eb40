// SPDX-License-Identifier: Apache-2.0
// A profile is JSON: {"minim_expert_uses": 1, "uses": [[3.5, 0, ...], ...]}, one list for each layer, with one number
// for each expert.
#include "model/expert_profile.h"

#include <cmath>
#include <span>

#include "base/error.h"
#include "base/format_text.h"
#include "base/json.h"
#include "base/new_file.h"
#include "checkpoint/text_file.h"
#include "model/model.h"

namespace minim::model {
namespace {

constexpr uint64_t k_largest_profile = uint64_t{16} << 20;
constexpr const char* k_key = "minim_expert_uses";
constexpr float k_max_uses = 1e9F;

// Returns the uses of one layer.
std::vector<float> read_layer(const json::Value& list, const std::string& path, size_t layer,
                              int64_t n_expert) {
    if (!list.is_array() || std::ssize(list.items) != n_expert)
        fail_file(Reason::shape, "{}: layer {} has uses of {} experts, the model has {}", path, layer,
                  list.items.size(), n_expert);
    std::vector<float> uses;
    for (const json::Value& item : list.items) {
        const auto number = static_cast<float>(item.number);
        if (!item.is_number() || !(number >= 0.0F) || number > k_max_uses)
            fail_file(Reason::format, "{}: an expert of layer {} was used {} times", path, layer,
                      json::to_text(item));
        uses.push_back(number);
    }
    return uses;
}

}  // namespace

ExpertUses read_expert_profile(const std::string& path, const Config& config) {
    const json::Value file =
        json::parse(checkpoint::read_text_file(path, k_largest_profile), path, json::Source::file);
    const json::Value* version = json::find(&file, k_key);
    const json::Value* uses = json::find(&file, "uses");
    if (version == nullptr || uses == nullptr || !uses->is_array())
        fail_file(Reason::format, "{}: no profile of experts: '{}' or 'uses' is missing", path, k_key);
    if (json::to_int64(*version) != 1)
        fail_file(Reason::format, "{}: a profile of version {}; 1 is known", path, json::to_text(*version));
    if (std::ssize(uses->items) != config.n_layer)
        fail_file(Reason::shape, "{}: uses of {} layers, the model has {}", path, uses->items.size(),
                  config.n_layer);
    ExpertUses all;
    for (size_t layer = 0; layer < uses->items.size(); ++layer)
        all.push_back(read_layer(uses->items[layer], path, layer, config.n_expert));
    return all;
}

void write_expert_profile(const std::string& path, const Model& model) {
    const Config& config = model.config();
    ExpertUses all(config.n_layer, std::vector<float>(config.n_expert));
    bool has_cache = false;
    for (const auto& pool : model.expert_pools()) {
        if (pool == nullptr) continue;
        has_cache = true;
        ExpertUses uses = pool->uses();
        for (size_t i = 0; i < uses.size(); ++i) all[pool->layers()[i].layer] = std::move(uses[i]);
    }
    if (!has_cache)
        fail(Status::invalid, "{}: no profile without a cache of experts, which the model has not", path);
    std::string text = format_text("{{\"{}\": 1, \"uses\": [", k_key);
    for (const std::vector<float>& layer : all) {
        text += &layer == &all.front() ? "\n[" : ",\n[";
        for (size_t e = 0; e < layer.size(); ++e)
            text += format_text("{}{:.4g}", e == 0 ? "" : ", ", layer[e]);
        text += "]";
    }
    text += "\n]}\n";
    NewFile file(path, text.size());
    file.write(std::as_bytes(std::span(text)));
    file.commit();
}

}  // namespace minim::model
