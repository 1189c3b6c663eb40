// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/load_counter.h"

#include "base/error.h"

namespace minim::checkpoint {

LoadCounter::LoadCounter(uint64_t total, const Progress& progress, const CancelToken* cancel)
    : total_(total), progress_(progress), cancel_(cancel) {
    report();
}

void LoadCounter::add(uint64_t bytes) {
    throw_if_cancelled(cancel_, "loading");
    done_ += bytes;
    if (done_ - reported_ >= k_load_block_bytes || (done_ == total_ && done_ != reported_)) report();
}

void LoadCounter::report() {
    throw_if_cancelled(cancel_, "loading");
    reported_ = done_;
    if (progress_ && !progress_(done_, total_)) fail(Status::cancelled, "cancelled during loading");
}

}  // namespace minim::checkpoint
