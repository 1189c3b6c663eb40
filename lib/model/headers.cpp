// SPDX-License-Identifier: Apache-2.0
#include "model/headers.h"

#include "model/mtp_layers.h"
#include "model/side_file.h"

namespace minim::model {

Config read_config(const checkpoint::Checkpoint& checkpoint, const Logger& log) {
    if (checkpoint.container() == checkpoint::Container::gguf)
        return with_mtp_layers(checkpoint, config_from_gguf(checkpoint.metadata(), log), log);
    Config config =
        with_mtp_layers(checkpoint, config_from_json(side_file(checkpoint, "config.json", true), log), log);
    const std::string hf_quant = side_file(checkpoint, "hf_quant_config.json", false);
    if (!hf_quant.empty()) layouts::add_hf_quant_config(hf_quant, config.packing);
    return config;
}

}  // namespace minim::model
