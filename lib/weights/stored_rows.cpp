// SPDX-License-Identifier: Apache-2.0
#include "weights/stored_rows.h"

#include <algorithm>
#include <cstring>

#include "panel/panel.h"

namespace minim::weights {
namespace {

using panel::k_panel_rows;

// Copies rows [first, first + count), which are in one block of the matrix.
void copy_rows(const backend::Matrix& stored, int64_t first, int64_t count, std::byte* out) {
    const std::byte* rows = stored.row(first);
    if (!stored.packed || count < k_panel_rows) {
        std::memcpy(out, rows, count * stored.row_bytes);
    } else {
        panel::unpack_panel(stored.format, rows, stored.row_bytes, stored.cols, out);
    }
}

}  // namespace

void read_stored_rows(const WeightSpec& weight, const backend::Matrix& stored, const Reader& reader,
                      std::span<std::byte> out) {
    if (stored.format != weight.format || stored.data == nullptr) return reader.read(weight, 0, out);
    // Blocks of rows begin at whole panels.
    for (int64_t row = 0; row < stored.rows; row += k_panel_rows) {
        const int64_t count = std::min(k_panel_rows, stored.rows - row);
        copy_rows(stored, row, count, out.data() + row * stored.row_bytes);
    }
}

}  // namespace minim::weights
