// SPDX-License-Identifier: Apache-2.0
#include "weights/host_room.h"

#include <map>

#include "base/error.h"
#include "base/format_text.h"
#include "base/memory_info.h"

namespace minim::weights {
namespace {

// Returns the number of layers whose experts must leave the host to save `missing` bytes; 0: even the experts of all
// layers are too few.
size_t layers_to_offload(const std::map<int32_t, uint64_t>& expert_bytes, uint64_t missing) {
    uint64_t saved = 0;
    size_t n_layers = 0;
    for (const auto& [layer, bytes] : expert_bytes) {
        saved += bytes;
        ++n_layers;
        if (saved >= missing) return n_layers;
    }
    return 0;
}

}  // namespace

void check_host_room(const DeviceWeights& part, uint64_t needed, uint64_t available) {
    if (needed <= available) return;
    bool is_contiguous = true;
    std::map<int32_t, uint64_t> expert_bytes;  // of each layer
    for (const WeightSpec* weight : part.weights) {
        is_contiguous &= weight->is_contiguous();
        if (weight->is_expert()) expert_bytes[weight->layer] += weight->bytes();
    }
    const size_t n_layers = layers_to_offload(expert_bytes, needed - available);
    std::string text =
        format_text("weights in host memory: {} bytes needed, {} bytes available{}; ", needed, available,
                    needed > available_address_space_bytes()
                        ? " under the process's limit of address space (ulimit -v, RLIMIT_AS)"
                        : "");
    if (n_layers > 0)
        text += format_text("they fit with the experts of {} of {} layers on devices, or ", n_layers,
                            expert_bytes.size());
    text += format_text("mapped from {} they need no memory of the process",
                        is_contiguous ? "their file" : "a packed file");
    ErrorFacts facts;
    facts.requested = needed > INT64_MAX ? INT64_MAX : static_cast<int64_t>(needed);
    facts.available = static_cast<int64_t>(available);
    throw Error(Status::out_of_memory, Reason::none, text, facts);
}

}  // namespace minim::weights
