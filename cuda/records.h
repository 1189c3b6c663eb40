// SPDX-License-Identifier: Apache-2.0
// The steps that a stream has recorded. The first step of a kind is computed, the second one is recorded if it follows
// soon, later ones are repeated.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "backend/kv_view.h"
#include "cuda/fast/attention.h"
#include "cuda/runtime.h"

namespace minim::cuda {

// The properties of a step that a record depends on.
struct RecordKey {
    const void* calls = nullptr;
    int64_t n = 0;
    bool has_ids = false;
    int64_t n_context = 0;
    fast::TileCounts tiles;
    backend::KvLayout layout;
    bool operator==(const RecordKey&) const = default;
};

// How the steps of a device were executed so far, in all its streams.
struct StepLog {
    std::atomic<int64_t> n_computed = 0;
    std::atomic<int64_t> n_recorded = 0;
    std::atomic<int64_t> n_repeated = 0;
    std::atomic<int64_t> n_failed = 0;
    std::atomic<const char*> why_failed = nullptr;
    std::function<void(std::string_view)> say;

    void warn(std::string_view what, std::string_view why) const noexcept;
};

class Records {
  public:
    Records(int32_t device, StepLog& log) : device_(device), log_(log) {}
    Records(const Records&) = delete;
    Records& operator=(const Records&) = delete;
    ~Records() { clear(); }
    void reserve();

    // Begins a step. Returns true if an earlier record does all of it. Else the operations follow, which are recorded or
    // computed.
    bool begin(runtime::Stream stream, const RecordKey& key);
    // Ends a step. Returns false if nothing was computed: the step must begin again.
    bool end(runtime::Stream stream);
    // Ends an interrupted step.
    void drop(runtime::Stream stream);

    bool is_recording() const noexcept { return is_recording_; }
    // Returns whether kernels of the step may start early.
    bool starts_early() const noexcept { return !is_recording_ || starts_early_; }
    void count_launch() noexcept {
        if (is_recording_) ++records_[current_].n_launches;
    }
    // Makes the current record unusable.
    void spoil(const char* why) noexcept {
        if (why_spoilt_ == nullptr) why_spoilt_ = why;
    }

  private:
    struct Record {
        RecordKey key;
        runtime::Graph graph = nullptr;  // null: the step was computed, but not recorded yet
        int64_t n_launches = 0;          // of the graph
        int64_t last_use = 0;            // n_steps_ at the last use
    };
    bool repeat(runtime::Stream stream, runtime::Graph graph);
    void note_failure(const char* why);
    void make_room();
    void clear() noexcept;

    const int32_t device_;
    StepLog& log_;
    std::vector<Record> records_;
    size_t current_ = 0;                 // the one being recorded
    std::optional<RecordKey> computed_;  // the current step, if it is the first of its kind
    int64_t n_steps_ = 0;
    int32_t n_failures_ = 0;  // in a row
    bool is_recording_ = false;
    bool starts_early_ = true;          // kernels of a record may start early
    bool is_off_ = false;               // recording has failed too often
    const char* why_spoilt_ = nullptr;  // the error that made the current record unusable, or null
};

}  // namespace minim::cuda
