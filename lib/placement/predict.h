// How fast a placement is, from bytes and bandwidths. The figures behind it are explained where they stand (predict.cpp).
#pragma once

#include <cstdint>
#include <span>

#include "model/config.h"
#include "placement/facts.h"

namespace minim::placement {

struct Plan;

// Bytes of one layer.
struct LayerReads {
    double dense = 0.0;
    double kv = 0.0;           // of one sequence's whole context
    double experts = 0.0;      // all of them
    double expert_part = 0.0;  // of them, read for one token
};

struct PredictRequest {
    const model::Config& config;
    std::span<const DeviceFacts> devices;
    const HostFacts& host;
    std::span<const LayerReads> layers;
    double head = 0.0;
    int64_t n_context = 0;
    int64_t n_ubatch = 0;
};

// Sets the plan's speeds and parts of a token's time from where its layers and experts are.
void predict(const PredictRequest& request, Plan& plan);

}  // namespace minim::placement
