// The layers of a model, cut into stages: consecutive layers on one device. The first stage also has the embedding,
// the last one the output head; between two stages the residual stream changes the device.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"

namespace minim::model {

struct Stage {
    std::shared_ptr<const backend::Backend> backend;
    int64_t n_layer = 0;
};

// n_layer layers in proportion to the shares, one count a share. The counts add up; a share of 0 gets none. Throws
// invalid where the shares are not finite numbers from 0 on with a sum above it.
std::vector<int64_t> split_layers(int64_t n_layer, std::span<const double> shares);

}  // namespace minim::model
