// SPDX-License-Identifier: Apache-2.0
// Reads finished files again: headers and tensors must be those that were written, and decode to finite numbers.
#pragma once

#include <cstdint>
#include <map>

#include "base/cancel.h"
#include "base/log.h"
#include "base/thread_pool.h"
#include "checkpoint/gguf_writer.h"
#include "convert/journal.h"
#include "convert/partial_output.h"
#include "convert/plan.h"

namespace minim::convert {

// Throws io, naming file and tensor, for bytes that differ, and internal for an encoded tensor that is not finite. A copied tensor
// that is not finite, as in the source, is a warning.
void verify(const PartialOutput& output, const Plan& plan, const checkpoint::MetaEntries& metadata,
            const ThreadPool& threads, const CancelToken* cancel, const Logger& log);

}  // namespace minim::convert
