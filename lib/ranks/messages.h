// SPDX-License-Identifier: Apache-2.0
// Messages by which the leading process drives the others. A message is a header and what its kind has:
//
//   header      uint32 magic 'MNM1', kind; uint64 number, bytes, hash (XXH3) of what follows
//   step        uint32 space, n_rows, n_sequences, n_pages; rows {int32 token, sequence; int64 position; int32 wants, 0}[];
//               sequences {uint32 pool, first_page, n_pages, 0}[]; pages {int32 slab, index}[]
//   make_space  uint32 space, 0; int64 n_rows, n_context *            end_space   uint32 space
//   make_pool   uint32 pool, 0; layout {int64 n_layer, n_head_kv, head_dim; uint32 k_format, v_format;
//               int64 index_dim, first_index_layer} *
//   end_pool    uint32 pool
//   add_slab    uint32 pool; int32 slab; int64 n_pages *              drop_slab   uint32 pool; int32 slab
//   copy_page   uint32 pool; page from, to                            read_page   uint32 pool; page *
//   write_page  uint32 pool; page; bytes                              stop
//   answer      int32 status; uint32 n_text; text; bytes
//
// All numbers are little endian. To those with a * the other process sends an answer. A step has whole page tables, so that the
// processes have no state to keep in step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "backend/kv_view.h"
#include "base/error.h"

namespace minim::ranks {

struct MessageHeader {
    uint32_t magic;
    uint32_t kind;
    uint64_t number;
    uint64_t n_bytes;  // of what follows
    uint64_t hash;
};

struct StepMessage {
    struct Row {
        int32_t token = 0;
        int32_t sequence = 0;  // in `sequences`
        int64_t position = 0;
        int32_t wants_logits = 0;
        int32_t unused = 0;
    };
    struct Sequence {
        uint32_t pool = 0;
        uint32_t first_page = 0;  // in `pages`
        uint32_t n_pages = 0;
        uint32_t unused = 0;
    };
    uint32_t space = 0;
    std::vector<Row> rows;
    std::vector<Sequence> sequences;
    std::vector<backend::KvPage> pages;  // the page tables of the sequences, one after another
};
struct MakeSpaceMessage {
    uint32_t space = 0;
    int64_t n_rows = 0;
    int64_t n_context = 0;
};
struct EndSpaceMessage {
    uint32_t space = 0;
};
struct MakePoolMessage {
    uint32_t pool = 0;
    backend::KvLayout layout;  // of all layers and heads
};
struct EndPoolMessage {
    uint32_t pool = 0;
};
struct AddSlabMessage {
    uint32_t pool = 0;
    int32_t slab = 0;
    int64_t n_pages = 0;
};
struct DropSlabMessage {
    uint32_t pool = 0;
    int32_t slab = 0;
};
struct CopyPageMessage {
    uint32_t pool = 0;
    backend::KvPage from;
    backend::KvPage to;
};
struct ReadPageMessage {
    uint32_t pool = 0;
    backend::KvPage page;
};
struct WritePageMessage {
    uint32_t pool = 0;
    backend::KvPage page;
    std::vector<std::byte> bytes;
};
struct StopMessage {};
struct AnswerMessage {
    Status status = Status::ok;
    std::string text;
    std::vector<std::byte> bytes;
};

// In the order of the kinds, which count from 1.
using Message = std::variant<StepMessage, MakeSpaceMessage, EndSpaceMessage, MakePoolMessage, EndPoolMessage,
                             AddSlabMessage, DropSlabMessage, CopyPageMessage, ReadPageMessage,
                             WritePageMessage, StopMessage, AnswerMessage>;

// `number` counts the messages from one process to another, from 0.
std::vector<std::byte> encode(const Message& message, uint64_t number);

// Every count is compared with the bytes, and every index with its count. Throws format.
Message parse_message(std::span<const std::byte> bytes, uint64_t number);

}  // namespace minim::ranks
