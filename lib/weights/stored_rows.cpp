// SPDX-License-Identifier: Apache-2.0
#include "weights/stored_rows.h"

#include <algorithm>
#include <cstring>

#include "panel/panel.h"

namespace minim::weights {
namespace {

using panel::k_panel_rows;

// Copies rows [first, first + count), which lie in one part of the matrix.
void copy_rows(const backend::Matrix& held, int64_t first, int64_t count, std::byte* out) {
    const std::byte* rows = held.row(first);
    if (!held.packed || count < k_panel_rows) {
        std::memcpy(out, rows, static_cast<size_t>(count * held.row_bytes));
    } else {
        panel::unpack_panel(held.format, rows, held.row_bytes, held.cols, out);
    }
}

}  // namespace

void read_stored_rows(const WeightSpec& weight, const backend::Matrix& held, const Reader& reader,
                      std::span<std::byte> out) {
    if (held.format != weight.format || held.data == nullptr) return reader.read(weight, 0, out);
    // Parts of a split matrix begin at whole panels.
    for (int64_t row = 0; row < held.rows; row += k_panel_rows) {
        const int64_t count = std::min(k_panel_rows, held.rows - row);
        copy_rows(held, row, count, out.data() + row * held.row_bytes);
    }
}

}  // namespace minim::weights
