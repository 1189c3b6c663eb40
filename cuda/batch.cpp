// SPDX-License-Identifier: Apache-2.0
#include "cuda/batch.h"

#include <algorithm>
#include <bit>

namespace minim::cuda {
namespace {

using backend::KvRow;
using backend::KvSequence;

// The offsets of the tables of n rows; the pages come last.
struct Layout {
    int64_t position, attend_tiles, first_page, pages;
    explicit Layout(int64_t n)
        : position(4 * n),
          attend_tiles(position + 4 * n),
          first_page(attend_tiles + 8 * n),
          pages(first_page + 8 * n) {}
};

}  // namespace

int64_t batch_bytes(int64_t n, int64_t n_pages) {
    return Layout(n).pages + 8 * n_pages;
}

bool is_known(const Stream& s, std::span<const int32_t> ids, std::span<const KvRow> rows) {
    const auto is_same = [](const KvRow& a, const KvRow& b) {
        return a.sequence == b.sequence && a.position == b.position;
    };
    return std::ranges::equal(s.batch.rows, rows, is_same) &&
           (ids.empty() || std::ranges::equal(s.batch.ids, ids));
}

int64_t lay_out(Stream& s, std::span<const int32_t> ids, std::span<const KvRow> rows, int64_t n_head,
                int64_t n_head_kv) {
    s.batch.rows.assign(rows.begin(), rows.end());
    s.batch.ids.assign(ids.begin(), ids.end());
    const auto n = std::ssize(rows);
    const Layout layout(n);
    const auto at = [](std::byte* base, int64_t offset, auto* pointer) {
        return reinterpret_cast<decltype(pointer)>(base + offset);
    };
    const auto tables_at = [&](std::byte* base) {
        BatchTables tables = {};
        tables.ids = at(base, 0, tables.ids);
        tables.position = at(base, layout.position, tables.position);
        tables.attend_tiles = at(base, layout.attend_tiles, tables.attend_tiles);
        tables.first_page = at(base, layout.first_page, tables.first_page);
        tables.pages = at(base, layout.pages, tables.pages);
        return tables;
    };
    s.batch.tables = tables_at(s.work.tables);
    const BatchTables host = tables_at(s.batch.host_tables);
    std::ranges::copy(ids, host.ids);
    // Rows of one sequence that follow each other share its table.
    int64_t n_pages = 0;
    int64_t first = 0;
    int64_t furthest = 0;
    const KvSequence* last = nullptr;
    for (int64_t i = 0; i < n; ++i) {
        const KvRow& row = rows[i];
        if (row.sequence != last) {
            last = row.sequence;
            first = n_pages;
            for (std::byte* page : last->pages) host.pages[n_pages++] = reinterpret_cast<uint64_t>(page);
        }
        host.first_page[i] = first;
        host.position[i] = static_cast<int32_t>(row.position);
        furthest = std::max(furthest, row.position + 1);
    }
    s.batch.n_context = static_cast<int64_t>(
        std::bit_ceil(static_cast<uint64_t>(std::max(furthest, backend::k_kv_page_tokens))));
    s.batch.n_tiles = {};
    if (s.fast_work.query != nullptr)
        s.batch.n_tiles =
            fast::make_tiles(rows, n_head, n_head_kv, std::span(host.attend_tiles, 2 * n), s.fixed);
    return batch_bytes(n, n_pages);
}

}  // namespace minim::cuda
