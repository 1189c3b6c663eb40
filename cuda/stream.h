// SPDX-License-Identifier: Apache-2.0
// A stream, and the device memory that its operations need beside their arguments. The memory is reserved once, so that
// no operation allocates.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "backend/backend.h"
#include "base/error.h"
#include "cuda/debug.h"
#include "cuda/dense_products.h"
#include "cuda/fast/attention.h"
#include "cuda/fast/operations.h"
#include "cuda/fast/stream_kernels.h"
#include "cuda/fast/top_k.h"
#include "cuda/operation_list.h"
#include "cuda/records.h"
#include "cuda/runtime.h"

namespace minim::cuda {

// The tables of a batch, copied to the device in one transfer.
struct BatchTables {
    int32_t* ids;           // [n], or nothing
    int32_t* position;      // [n]
    int32_t* attend_tiles;  // [n, 2]
    int64_t* first_page;    // [n]
    uint64_t* pages;
};

// The batch on the device, until the stream is synchronised: the page tables of its sequences do not change until then.
struct Batch {
    std::vector<backend::KvRow> rows;
    std::vector<int32_t> ids;
    BatchTables tables;  // in Work::tables
    fast::TileCounts n_tiles;
    int64_t n_context = 0;  // a power of two, no less than the longest context of the rows
    std::unique_ptr<backend::Memory> host_memory;
    std::byte* host_tables = nullptr;  // in host_memory, laid out as Work::tables
    std::vector<float> frequency;      // in Work::frequency
};

// Returns the number of blocks of the longest context, which a row with an index may see.
inline int64_t index_blocks(const backend::StepLimits& limits) noexcept {
    return limits.index.n_head == 0 ? 0 : (limits.n_context + limits.index.block - 1) / limits.index.block;
}

// Memory of the device.
struct Work {
    int32_t* ids;            // [n_rows], of an embed() outside of a batch
    std::byte* tables;       // batch_bytes(n_rows, pages of all)
    float* frequency;        // [head_dim]
    float* score;            // [n_rows, n_expert]
    float* activated;        // [n_slots, expert_ff], n_slots = n_rows * n_expert_used
    float* output;           // [n_slots, hidden] or the up of the slots, whichever is larger
    float* block_scores;     // [n_rows, index heads, index_blocks()]
    int32_t* chosen_blocks;  // [n_rows, index heads, top]
    fast::TopKWork top_k;    // of k_max_top_k_rows
    uint32_t* seen;          // the host's answer to a turn of an exchange
    uint32_t* step;          // the number of an exchange's step; null: the exchange is not by pieces
};

// Memory of the device that only fast arithmetic needs.
struct FastWork {
    fast::Q8Block* input;            // [n_rows, the longest row of an input / 32]
    fast::Q8Block* quantized_slots;  // [n_slots, expert_ff / 32]
    fast::HalfBlock* halved;         // [n_rows, the longest row of an input / 128]
    fast::HalfBlock* halved_slots;   // [n_slots, expert_ff / 128]
    fast::ExpertTiles tiles;         // of n_slots
    fast::HalfInputs tile_input;     // of n_rows, the longest row of an input; null: the path is off
    fast::HalfInputs tile_slots;     // of n_slots, expert_ff; null: the path is off
    float* router_partial;           // route_partial_floats(n_rows)
    int32_t* arrived;                // counters of the blocks of threads that have arrived: 0 between kernels
    uint16_t* query;  // [n_rows, n_head * head_dim], F16; null: attention has no fast kernels for these heads
    float* partial;   // of attention whose context is shared between blocks
    fast::ChosenPages
        chosen_pages;  // of n_rows; no pages a head: no rows choose blocks, or they are not whole pages
    backend::ExpertPlace* chosen;  // [n_chosen_places()]; null: the path is off
    DenseProducts* dense;          // of the device; null: it has no library
    uint16_t* narrowed;            // [n_rows, the longest row of an input], if there is a library
    float* narrowed_factor;        // [n_rows], of F16
    std::byte* dense_workspace;    // DenseProducts::k_workspace_bytes
    uint16_t* unpacked;            // [n_unpacked], the weights of a product; null: the path is off
    int64_t n_unpacked;
};

// Looks at the other ranks while the work of a stream waits for them. The stream's thread calls it.
class PeerWatch {
  public:
    virtual ~PeerWatch() = default;
    // Returns the error with which the exchange has ended, having begun to end the work that waits for it. `waited`: how long the stream
    // has been waited for, in which it had at most n_rows rows to compute.
    virtual std::optional<Error> look(std::chrono::steady_clock::duration waited,
                                      int64_t n_rows) noexcept = 0;
};

struct Stream : backend::Scratch {
    int32_t device;
    runtime::Stream stream = nullptr;
    backend::StepLimits limits;
    int32_t n_processors = 0;
    fast::TileSize tile_size = fast::TileSize::small;
    fast::StreamDevice stream_device;  // no processors: the path is off, or the device cannot take it
    bool fixed = false;                // the same kernels and parts of the context for every batch
    LaunchPaths paths = {};
    std::unique_ptr<backend::Memory> memory;  // owns what the pointers of the next two point to
    Work work = {};
    FastWork fast_work = {};
    Batch batch;
    Records records;
    OperationList list;
    // Flag of the exchange that the stream collects from: nonzero after an answer that came too late. Null: no exchange yet.
    std::shared_ptr<uint32_t> host_is_late;

    PeerWatch* watch = nullptr;  // null: the stream's work waits for no other rank
    bool is_stuck = false;       // its work does not end

    // The error of a failed call; no more work is started in the stream until it is synchronised. Null: none.
    const char* error = nullptr;
    const char* dense_error = nullptr;  // of a product of the library, until it is noted

    Stream(int32_t device_index, StepLog& log) : device(device_index), records(device_index, log) {}
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;
    ~Stream() override {
        if (stream != nullptr && !is_stuck) runtime::end_stream(device, stream);
    }
};

}  // namespace minim::cuda
