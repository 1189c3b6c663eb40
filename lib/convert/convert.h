// SPDX-License-Identifier: Apache-2.0
// Converts and quantises a model: reads each tensor a slab of rows at a time, encodes it, and writes it to a folder OUTPUT.partial
// beside the output, whose files get their names once all of them are complete. Memory does not depend on the sizes of tensors. The
// bytes of the output do not depend on threads, memory, the instruction set, or how often the work was interrupted.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/cancel.h"
#include "base/log.h"
#include "base/thread_pool.h"
#include "convert/options.h"

namespace minim::convert {

// How far the work is.
struct Progress {
    uint64_t done_bytes = 0;  // of the source
    uint64_t total_bytes = 0;
    int64_t n_done = 0;  // tensors that are finished
    int64_t n_tensors = 0;
    std::string_view tensor;  // the one that is worked on, or that was just finished
    std::string_view result;  // of a tensor that was just finished: a JSON object, as in the report; else ""
};
// Called on the calling thread: after each slab, and after each tensor. Returning false cancels.
using ProgressFunction = std::function<bool(const Progress&)>;

// Returns the plan as JSON; writes nothing.
std::string plan_conversion(const Options& options, const ThreadPool& threads, const Logger& log);

// Returns the report as JSON. Throws
// - invalid: options that contradict each other or the model; an output that exists, or is the source; another unfinished job's output;
// - io: too little room, or a write that failed; busy: another process is writing this output;
// - cancelled; what opening and reading the source throws.
// After a failure the finished tensors stay in OUTPUT.partial, and the same call goes on with the others.
std::string convert_model(const Options& options, const ThreadPool& threads, const CancelToken* cancel,
                          const ProgressFunction& progress, const Logger& log);

}  // namespace minim::convert
