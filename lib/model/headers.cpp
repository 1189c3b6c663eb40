// SPDX-License-Identifier: Apache-2.0
#include "model/headers.h"

#include <map>
#include <string>
#include <utility>

#include "model/mtp_layers.h"
#include "model/side_file.h"
#include "model/tensor_names.h"

namespace minim::model {
namespace {

// Gives the modules of declarations the names that tensors are looked up by: without the prefix of a language model.
void drop_prefixes(layouts::PackingHints& hints) {
    for (layouts::Declaration& declaration : hints.declarations) {
        std::map<std::string, layouts::Declaration::Entry> modules;
        for (const auto& [name, entry] : declaration.modules) {
            std::string plain = names::without_prefix(name + ".").first;
            plain.pop_back();
            modules.emplace(std::move(plain), entry);
        }
        declaration.modules = std::move(modules);
    }
}

}  // namespace

Config read_config(const checkpoint::Checkpoint& checkpoint, const Logger& log) {
    if (checkpoint.container() == checkpoint::Container::gguf)
        return with_mtp_layers(checkpoint, config_from_gguf(checkpoint.metadata(), log), log);
    Config config =
        with_mtp_layers(checkpoint, config_from_json(side_file(checkpoint, "config.json", true), log), log);
    const std::string hf_quant = side_file(checkpoint, "hf_quant_config.json", false);
    if (!hf_quant.empty()) layouts::add_hf_quant_config(hf_quant, config.packing);
    if (config.family == Family::m3) drop_prefixes(config.packing);
    return config;
}

}  // namespace minim::model
