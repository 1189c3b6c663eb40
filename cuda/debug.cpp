// SPDX-License-Identifier: Apache-2.0
#include "cuda/debug.h"

#include <cstdlib>

#include "base/error.h"

namespace minim::cuda {

DebugSwitches parse_debug_switches(std::string_view words) {
    DebugSwitches switches;
    while (!words.empty()) {
        const std::string_view word = words.substr(0, words.find(','));
        words.remove_prefix(word.size() < words.size() ? word.size() + 1 : word.size());
        if (word == "no-early") {
            switches.early = false;
        } else if (word == "no-prefetch") {
            switches.prefetch = false;
        } else if (word == "no-fold") {
            switches.fold = false;
        } else if (word == "no-record") {
            switches.record = false;
        } else if (word == "no-library") {
            switches.library = false;
        } else if (word == "no-nccl") {
            switches.nccl = false;
        } else if (word == "no-peer-sum") {
            switches.peer_sum = false;
        } else if (word == "sync") {
            switches.sync = true;
            switches.record = false;  // a stream that is being recorded cannot be waited for
        } else if (!word.empty()) {
            fail(Status::invalid,
                 "MINIM_CUDA_DEBUG: '{}' is not one of no-early, no-prefetch, no-fold, no-record, "
                 "no-library, no-nccl, no-peer-sum, sync",
                 word);
        }
    }
    return switches;
}

const DebugSwitches& debug_switches() {
    static const DebugSwitches switches = [] {
        const char* words = std::getenv("MINIM_CUDA_DEBUG");
        return parse_debug_switches(words == nullptr ? "" : words);
    }();
    return switches;
}

}  // namespace minim::cuda
