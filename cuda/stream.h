// SPDX-License-Identifier: Apache-2.0
// A stream, and the device memory that its operations need beside their arguments. The memory is reserved once, so that
// no operation allocates.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "cuda/dense_products.h"
#include "cuda/fast/attention.h"
#include "cuda/fast/operations.h"
#include "cuda/fast/shortlist.h"
#include "cuda/runtime.h"

namespace minim::cuda {

// A batch on the device, copied there in one transfer.
struct BatchTables {
    int32_t* ids;           // [n], or nothing
    int32_t* position;      // [n]
    int32_t* attend_tiles;  // [n, 2]
    int64_t* first_page;    // [n]
    uint64_t* pages;
};

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

struct Record {
    RecordKey key;
    runtime::Graph graph = nullptr;  // null: the step was computed, but not recorded yet
    int64_t n_launches = 0;          // of the graph
    int64_t last_use = 0;            // Stream::n_steps at the last use
};

struct Stream : backend::Scratch {
    int32_t device = 0;
    runtime::Stream stream = nullptr;
    std::unique_ptr<backend::Memory> memory;  // owns what the pointers below point to
    backend::StepLimits limits;
    bool fixed = false;  // the same kernels and parts of the context for every batch

    int32_t* ids;                   // [n_rows], of an embed() outside of a batch
    std::byte* tables;              // batch_bytes(n_rows, pages of all)
    float* frequency;               // [head_dim]
    float* score;                   // [n_rows, n_expert]
    float* activated;               // [n_slots, expert_ff], n_slots = n_rows * n_expert_used
    float* output;                  // [n_slots, hidden] or the up of the slots, whichever is larger
    fast::ShortlistWork shortlist;  // of k_most_shortlist_rows
    uint32_t* seen;                 // the host's answer to a turn of an exchange

    // Only for fast arithmetic:
    fast::Q8Block* input;            // [n_rows, the longest row of an input / 32]
    fast::Q8Block* quantized_slots;  // [n_slots, expert_ff / 32]
    fast::HalfBlock* halved;         // [n_rows, the longest row of an input / 128]
    fast::HalfBlock* halved_slots;   // [n_slots, expert_ff / 128]
    fast::ExpertTiles tiles;         // of n_slots
    float* router_partial;           // route_partial_floats(n_rows)
    int32_t* arrived;                // counters of the blocks of threads that have arrived: 0 between kernels
    uint16_t* query;                 // [n_rows, n_head * head_dim], F16
    float* partial;                  // of attention whose context is shared between blocks
    int32_t n_processors = 0;
    DenseProducts* dense = nullptr;     // of the device; null: it has no library
    uint16_t* narrowed;                 // [n_rows, the longest row of an input], if there is a library
    float* narrowed_factor;             // [n_rows], of F16
    std::byte* dense_workspace;         // DenseProducts::k_workspace_bytes
    const char* dense_error = nullptr;  // of a product, until it is noted

    // A norm that has not been launched: the next operation computes it with its first kernel, or it is launched before that
    // one (postponed_norm.h). x null: none.
    fast::NormRow postponed = {};

    // The rows whose quantised form is in `input`: [n, cols] from `of` on. Valid until one of them is written.
    struct {
        const float* of = nullptr;
        int64_t n = 0;
        int64_t cols = 0;
    } quantized;

    // The batch on the device, until the stream is synchronised: the page tables of its sequences do not change until
    // then.
    std::vector<backend::KvRow> batch;
    std::vector<int32_t> batch_ids;
    BatchTables batch_tables;
    fast::TileCounts n_attend_tiles;
    int64_t n_context = 0;  // a power of two, no less than the longest context of the rows
    std::unique_ptr<backend::Memory> host_memory;
    std::byte* host_tables = nullptr;  // in host_memory, laid out as `tables`
    std::vector<float> host_frequency;

    // Flag of the exchange that the stream collects from: nonzero after an answer that came too late. Null: no exchange yet.
    std::shared_ptr<uint32_t> host_is_late;

    // The error of a failed call; no more work is started in the stream until it is synchronised. Null: none.
    const char* error = nullptr;

    // Earlier steps; the one being recorded is `current`.
    std::vector<Record> records;
    size_t current = 0;
    std::optional<RecordKey> computed;  // the current step, if it is the first of its kind
    int64_t n_steps = 0;
    int32_t n_failed_records = 0;  // in a row
    bool is_recording = false;
    bool records_early = true;         // kernels of a record may start early
    const char* why_spoilt = nullptr;  // the error that made the current record unusable, or null
    bool records_nothing = false;      // recording has failed too often

    Stream() = default;
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;
    ~Stream() override {
        if (stream != nullptr) runtime::end_stream(device, stream);
        for (const Record& record : records)
            if (record.graph != nullptr) runtime::end_graph(device, record.graph);
    }
};

}  // namespace minim::cuda
