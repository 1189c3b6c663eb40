// SPDX-License-Identifier: Apache-2.0
#include "model/mtp_layers.h"

#include <algorithm>
#include <set>
#include <string>

#include "model/config_check.h"
#include "model/tensor_names.h"

namespace minim::model {

Config with_mtp_layers(const checkpoint::Checkpoint& checkpoint, Config config, const Logger& log) {
    std::set<int64_t> present;
    std::set<int64_t> marked;  // layers with tensors that only multi-token prediction has
    for (const checkpoint::Tensor& tensor : checkpoint.tensors()) {
        const std::string name =
            config.family == Family::m3 ? names::without_prefix(tensor.name).first : tensor.name;
        const int64_t layer = names::layer_of(name);
        if (layer < 0) continue;
        present.insert(layer);
        if (names::marks_mtp(name)) marked.insert(layer);
    }
    const int64_t n_present = present.empty() ? 0 : *present.rbegin() + 1;
    // Only the last layers are of prediction. If all look so, the file is refused for what it lacks.
    int64_t first = n_present;
    while (marked.contains(first - 1)) --first;
    if (first == 0) first = n_present;
    const int64_t counted = config.n_layer;
    const int64_t announced = config.n_mtp_layer;
    if (first < n_present) config.n_layer = std::min(counted, first);
    // Of GGUF writers, some count the layers that they announce, and then leave them out of the file.
    const bool is_gguf = checkpoint.container() == checkpoint::Container::gguf;
    if (is_gguf && announced > 0 && n_present > 0 && n_present == counted - announced)
        config.n_layer = std::min(config.n_layer, n_present);
    const int64_t end = std::max(counted, first < n_present ? n_present : 0);
    config.n_mtp_layer = std::max(announced, end - config.n_layer);
    if (config.n_layer != counted)
        log.info("{} of {} layers are of multi-token prediction and not used", counted - config.n_layer,
                 counted);
    check_config(config);
    return config;
}

}  // namespace minim::model
