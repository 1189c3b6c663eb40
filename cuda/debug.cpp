// SPDX-License-Identifier: Apache-2.0
#include "cuda/debug.h"

#include <cstdlib>

#include "base/error.h"

namespace minim::cuda {
namespace {

// Takes the first of several words, with its comma.
std::string_view take_word(std::string_view& words) {
    const std::string_view word = words.substr(0, words.find(','));
    words.remove_prefix(word.size() < words.size() ? word.size() + 1 : word.size());
    return word;
}

std::string_view variable(const char* name) {
    const char* words = std::getenv(name);
    return words == nullptr ? std::string_view() : words;
}

}  // namespace

DebugSwitches parse_debug_switches(std::string_view words) {
    DebugSwitches switches;
    while (!words.empty()) {
        const std::string_view word = take_word(words);
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
    static const DebugSwitches switches = parse_debug_switches(variable("MINIM_CUDA_DEBUG"));
    return switches;
}

LaunchPaths parse_launch_paths(std::string_view words) {
    LaunchPaths paths;
    while (!words.empty()) {
        const std::string_view word = take_word(words);
        if (word == "two-tables") {
            paths.two_tables = true;
        } else if (word == "chosen-places") {
            paths.chosen_places = true;
        } else if (word == "dense-prompts") {
            paths.dense_prompts = true;
        } else if (word == "tiles") {
            paths.tiles = true;
        } else if (word == "exchange-pieces") {
            paths.exchange_pieces = true;
        } else if (word == "stream") {
            paths.stream = true;
        } else if (!word.empty()) {
            fail(Status::invalid,
                 "MINIM_CUDA_PATHS: '{}' is not one of two-tables, chosen-places, dense-prompts, tiles, "
                 "exchange-pieces, stream",
                 word);
        }
    }
    return paths;
}

LaunchPaths launch_paths() {
    return parse_launch_paths(variable("MINIM_CUDA_PATHS"));
}

}  // namespace minim::cuda
