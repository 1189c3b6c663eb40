// A stream, and on the device what its operations need beside their arguments: reserved once, so that no operation
// allocates.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "cuda/fast/attention.h"
#include "cuda/fast/operations.h"
#include "cuda/runtime.h"

namespace minim::cuda {

struct Stream : backend::Scratch {
    int32_t device = 0;
    runtime::Stream stream = nullptr;
    std::unique_ptr<backend::Memory> memory;  // holds what the pointers below point to

    int32_t* ids;         // [n_rows]
    int32_t* position;    // [n_rows]
    int64_t* first_page;  // [n_rows]
    uint64_t* pages;      // [n_rows * pages of n_context]
    float* frequency;     // [head_dim]
    float* score;         // [n_rows, n_expert]
    float* activated;     // [n_slots, expert_ff], n_slots = n_rows * n_expert_used
    float* output;        // [n_slots, hidden] or the gate and the up of the slots, whichever is larger

    // Of fast arithmetic alone.
    fast::Q8Block* input;            // [n_rows, the longest row of an input / 32]
    fast::Q8Block* quantized_slots;  // [n_slots, expert_ff / 32]
    fast::ExpertTiles tiles;         // of n_slots
    uint16_t* query;                 // [n_rows, n_head * head_dim], F16
    int32_t* attend_tiles;           // [n_rows, 2]
    float* partial;                  // of attention whose context is shared between blocks
    int32_t n_processors = 0;

    // The rows that `input` holds, until one of them is written: [n, cols] from `of` on.
    struct {
        const float* of = nullptr;
        int64_t n = 0;
        int64_t cols = 0;
    } quantized;

    // The batch that the device knows, until the stream is synchronised: what a row's sequence points to stays as it is
    // until then.
    std::vector<backend::KvRow> batch;
    fast::TileCounts n_attend_tiles;
    int64_t n_context = 0;  // of the row that looks back furthest

    // Some of the above on the host, on their way.
    std::vector<int32_t> host_position;
    std::vector<int64_t> host_first_page;
    std::vector<uint64_t> host_pages;
    std::vector<int32_t> host_attend_tiles;
    std::vector<float> host_frequency;

    ~Stream() override {
        if (stream != nullptr) runtime::end_stream(device, stream);
    }
};

}  // namespace minim::cuda
