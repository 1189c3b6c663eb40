// SPDX-License-Identifier: Apache-2.0
#include "cuda/fast_stream.h"

namespace minim::cuda::fast {
namespace {

// Returns null if the format has no stream kernel.
StreamKernel stream_kernel(Format format) {
    for (const StreamKernelTable* family :
         {&k_stream_blocks_of_32, &k_stream_k_quants, &k_stream_value_tables, &k_stream_grids,
          &k_stream_trellis, &k_stream_ternary}) {
        const StreamKernel kernel = family->by_format[static_cast<size_t>(format)];
        if (kernel != nullptr) return kernel;
    }
    return nullptr;
}

bool launch_stream(Stream stream, Format format, const StreamCall& call, const StreamDevice& device) {
    const StreamKernel kernel = stream_kernel(format);
    return kernel != nullptr && device.n_processors > 0 && call.cols % 256 == 0 &&
           kernel(stream, call, device);
}

// Returns whether there are slots, and no more than those of the most rows.
bool takes_slots(const Slots& slots, int64_t slots_a_row) {
    const int64_t most_rows = slots.tiles != nullptr ? k_max_stream_tile_rows : k_max_stream_rows;
    return slots.n_slots != 0 && slots.n_slots <= most_rows * slots_a_row;
}

bool is_aligned(const StreamRows& rows) {
    return reinterpret_cast<uintptr_t>(rows.x) % sizeof(FourFloats) == 0;
}

// Returns whether results of n rows overlap the floats of the input: blocks write the ones beside others that read the others.
bool overwrites(const Products& products, int64_t n, const StreamRows& input) {
    if (input.x == nullptr) return false;
    const float* x_end = input.x + n * products.cols;
    for (int i = 0; i < products.count; ++i) {
        const float* y = products.y[i];
        if (y < x_end && input.x < y + (n - 1) * products.y_stride[i] + products.rows[i]) return true;
    }
    return false;
}

// The experts of slots that may have entries of their own.
Experts with_places(const Experts& experts, const Slots& slots) {
    Experts own = experts;
    if (slots.chosen != nullptr) own.places = slots.chosen;
    return own;
}

// Adds the slots to a call, or their tiles.
void put_slots(StreamCall& call, const Slots& slots) {
    if (slots.tiles != nullptr) {
        call.tiles = *slots.tiles;
        return;
    }
    call.n_slots = static_cast<int32_t>(slots.n_slots);
    call.n_inputs = call.n_slots / call.slots_an_input;
    call.ids = slots.chosen != nullptr ? nullptr : slots.ids;
}

}  // namespace

bool has_stream_kernel(Format format) {
    return stream_kernel(format) != nullptr;
}

bool linear_stream(Stream stream, const Products& products, const StreamRows& input, int64_t n,
                   const StreamDevice& device) {
    if (n == 0 || n > k_max_stream_rows || !is_aligned(input) || overwrites(products, n, input)) return false;
    return launch_stream(stream, products.format,
                         {.kind = StreamKind::rows,
                          .cols = products.cols,
                          .row_bytes = products.row_bytes,
                          .input = input,
                          .n_inputs = static_cast<int32_t>(n),
                          .products = products},
                         device);
}

bool linear_norm_stream(Stream stream, const Products& products, const NormRow& norm,
                        const StreamDevice& device) {
    return launch_stream(stream, products.format,
                         {.kind = StreamKind::rows,
                          .cols = products.cols,
                          .row_bytes = products.row_bytes,
                          .products = products,
                          .norm = norm},
                         device);
}

bool activate_stream(Stream stream, const Experts& gate, const Experts& up, const StreamRows& h,
                     int64_t n_used, const Slots& slots, Q8Block* activated, const StreamDevice& device) {
    if (!takes_slots(slots, n_used) || !is_aligned(h)) return false;
    const bool is_tiled = slots.tiles != nullptr;
    if (is_tiled && h.blocks == nullptr) return false;
    StreamCall call = {.kind = is_tiled ? StreamKind::activate_tiles : StreamKind::activate,
                       .cols = gate.cols,
                       .row_bytes = gate.row_bytes,
                       .input = h,
                       .experts = with_places(gate, slots),
                       .up = with_places(up, slots),
                       .slots_an_input = static_cast<int32_t>(n_used),
                       .activated = activated};
    put_slots(call, slots);
    return launch_stream(stream, gate.format, call, device);
}

bool project_stream(Stream stream, const Experts& experts, const Q8Block* input, const Slots& slots,
                    float* output, const SlotSums* sums, const StreamDevice& device) {
    if (!takes_slots(slots, k_max_used)) return false;
    const bool is_tiled = slots.tiles != nullptr;
    StreamCall call = {.kind = is_tiled ? StreamKind::project_tiles : StreamKind::project,
                       .cols = experts.cols,
                       .row_bytes = experts.row_bytes,
                       .input = {input},
                       .experts = with_places(experts, slots),
                       .output = output,
                       .n_used = sums == nullptr ? 1 : static_cast<int32_t>(sums->n_used),
                       .sums = sums == nullptr ? SlotSums{} : *sums};
    put_slots(call, slots);
    return launch_stream(stream, experts.format, call, device);
}

}  // namespace minim::cuda::fast
