// SPDX-License-Identifier: Apache-2.0
// The steps that a stream has recorded. The first step of a kind is computed, the second one is recorded if it follows
// soon, later ones are repeated.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "backend/kv_view.h"
#include "base/format_text.h"
#include "cuda/debug.h"
#include "cuda/fast/attention.h"
#include "cuda/runtime.h"

namespace minim::cuda {

// The most recorded steps of a stream: eight kinds, each cut into parts by the offloaded experts of 62 layers.
inline constexpr size_t k_max_records = 512;
// The most launches in all of them; beyond that the oldest are dropped: the driver uses some kilobytes for each.
inline constexpr int64_t k_max_launches = 8192;
// After this many failed records in a row, a stream records without early starts; after the same number again, it
// stops recording and computes every step.
inline constexpr int32_t k_max_failures = 3;
// A step is recorded only if another one of its kind was computed within this number of steps before it: recording
// costs more than a few repeats save.
inline constexpr int64_t k_max_steps_between = 50;

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

    void warn(std::string_view what, std::string_view why) const noexcept {
        try {
            if (say) say(format_text("{}: {}", what, why));
        } catch (...) {  // no memory for the text; the failure is counted anyway
        }
    }
};

class Records {
  public:
    Records(int32_t device, StepLog& log) : device_(device), log_(log) {}
    Records(const Records&) = delete;
    Records& operator=(const Records&) = delete;
    ~Records() { clear(); }
    void reserve() {
        records_.reserve(k_max_records);
        is_off_ = !debug_switches().record;
    }

    // Begins a step. Returns true if an earlier record does all of it. Else the operations follow, which are recorded or
    // computed.
    bool begin(runtime::Stream stream, const RecordKey& key) {
        computed_.reset();
        ++log_.n_computed;  // unless it is repeated
        if (is_off_) return false;
        ++n_steps_;
        const auto found = std::ranges::find(records_, key, &Record::key);
        if (found == records_.end()) {
            computed_ = key;
            return false;
        }
        const int64_t n_steps_between = n_steps_ - std::exchange(found->last_use, n_steps_);
        if (found->graph != nullptr) return repeat(stream, found->graph);
        if (n_steps_between > k_max_steps_between) return false;
        current_ = found - records_.begin();
        found->n_launches = 0;
        why_spoilt_ = nullptr;
        const char* why = runtime::begin_record(device_, stream);
        is_recording_ = why == nullptr;
        if (why != nullptr) note_failure(why);
        return false;
    }
    // Ends a step. Returns false if nothing was computed: the step must begin again.
    bool end(runtime::Stream stream) {
        if (computed_.has_value()) {
            make_room();
            records_.push_back({*computed_, nullptr, 0, n_steps_});
            computed_.reset();
        }
        if (!std::exchange(is_recording_, false)) return true;
        const char* why = nullptr;
        const runtime::Graph graph = runtime::end_record(device_, stream, why);
        if (graph == nullptr || why_spoilt_ != nullptr) {
            if (graph != nullptr) runtime::end_graph(device_, graph);
            --log_.n_computed;  // the step begins again
            note_failure(why_spoilt_ != nullptr ? why_spoilt_ : why);
            return false;
        }
        ++log_.n_recorded;
        records_[current_].graph = graph;
        return repeat(stream, graph);
    }
    // Ends an interrupted step.
    void drop(runtime::Stream stream) {
        computed_.reset();
        if (!std::exchange(is_recording_, false)) return;
        const char* why = nullptr;
        const runtime::Graph graph = runtime::end_record(device_, stream, why);
        if (graph != nullptr) runtime::end_graph(device_, graph);
    }

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
    // Starts a record; returns false if the step must be computed instead. If the device has no memory for the record,
    // frees the memory of all records.
    bool repeat(runtime::Stream stream, runtime::Graph graph) {
        const char* why = runtime::repeat(device_, graph, stream);
        if (why == nullptr) {
            --log_.n_computed;
            ++log_.n_repeated;
            n_failures_ = 0;
            return true;
        }
        clear();
        note_failure(why);
        return false;
    }
    // Counts a failed record. After too many of them, stops early starts first, since some drivers record no kernel that
    // starts early, and then recording.
    void note_failure(const char* why) {
        ++log_.n_failed;
        log_.why_failed = why;
        if (++n_failures_ < k_max_failures) return;
        n_failures_ = 0;
        is_off_ = !starts_early_;
        log_.warn(starts_early_ ? "steps are recorded without early launch from now on"
                                : "steps are launched kernel by kernel from now on, which is slower",
                  why);
        starts_early_ = false;
    }
    void make_room() {
        const auto n_launches = [&] {
            int64_t sum = 0;
            for (const Record& record : records_) sum += record.n_launches;
            return sum;
        };
        while (records_.size() == k_max_records || n_launches() > k_max_launches) {
            const auto oldest = std::ranges::min_element(records_, {}, &Record::last_use);
            if (oldest->graph != nullptr) runtime::end_graph(device_, oldest->graph);
            records_.erase(oldest);
        }
    }
    void clear() noexcept {
        for (const Record& record : records_)
            if (record.graph != nullptr) runtime::end_graph(device_, record.graph);
        records_.clear();
    }

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
