// SPDX-License-Identifier: Apache-2.0
// What a conversion will write: every tensor with its type, place and size, and every file, from headers alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/log.h"
#include "checkpoint/gguf_writer.h"
#include "convert/folder_layout.h"
#include "convert/importance.h"
#include "convert/options.h"
#include "convert/source.h"

namespace minim::convert {

enum class Work : uint8_t {
    copy,     // the source's bytes
    encode,   // decoded and encoded in another type
    factors,  // the factors of the matrices of `source`, F32
    pieces,   // encoded as codes and scales in tensors of their own
};

struct PlannedTensor {
    const SourceTensor* source = nullptr;
    std::string name;
    std::vector<int64_t> shape;  // outermost first
    Format type = Format::f32;
    Work work = Work::copy;
    uint64_t bytes = 0;
    int64_t file = 0;
    uint64_t offset = 0;  // in the file; of the first piece
    // Of a folder: the tensors of this matrix or vector, one after the other. Empty: one tensor, of GGUF.
    std::vector<Piece> pieces = {};
    FolderLayout piece_layout = FolderLayout::bf16;  // of Work::pieces

    // Returns the bytes of rows of the output, given how many the source has. Work::factors has none.
    int64_t bytes_of_rows(int64_t first, int64_t count) const;
};

struct PlannedFile {
    std::string name;  // without folder
    uint64_t bytes = 0;
    int64_t first = 0;  // of its tensors
    int64_t count = 0;
};

// Sizes of the pieces that are worked on together, chosen so that memory stays below the limit.
struct SlabSizes {
    uint64_t bytes = 0;       // of the source's and the output's rows of a slab, together
    int64_t chunk_rows = 0;   // rows that a thread encodes at a time, of the widest matrix
    uint64_t peak_bytes = 0;  // of all buffers
};
inline constexpr int64_t k_slabs = 3;  // one is read, one encoded, one written

struct Plan {
    std::optional<FolderLayout> layout = {};  // nothing: a GGUF file
    std::string folder;                       // of the output
    std::string name;                         // of the output, without folder
    std::vector<PlannedTensor> tensors;
    std::vector<PlannedFile> files;
    checkpoint::MetaEntries metadata;  // without the keys of parts; hashes are zero
    bool has_hashes = false;
    std::vector<std::string> without_importance;  // tensors without data, if any is given
    bool has_unused_importance = false;           // no matrix is encoded
    std::vector<std::string> needs_importance;    // tensors whose type needs data that they do not have
    std::vector<std::string> fallbacks;           // tensors whose rows the blocks of the type do not divide
    std::vector<std::string> widened;             // tensors of a type that GGUF does not have: BF16
    uint64_t bytes = 0;                           // of all files
    uint64_t tensor_bytes = 0;
    double bits_per_weight = 0;
    uint64_t source_bytes = 0;  // to be read
    uint64_t free_bytes = 0;    // in the folder
    SlabSizes slabs;
    std::vector<SourceTensor> matrices = {};  // of a folder: the source's tensors, each matrix apart
    std::vector<std::pair<std::string, std::string>> side_files = {};  // of a folder: names and texts

    std::string path() const { return folder + "/" + name; }
    std::string path_of(const PlannedFile& file) const {
        return layout ? path() + "/" + file.name : folder + "/" + file.name;
    }
    std::string partial_folder() const { return folder + "/" + name + ".partial"; }
};

// Reads no tensor. Throws invalid for options that cannot be met. Writes to the log what differs from what was asked for. The source
// must outlive the plan.
Plan make_plan(const Options& options, const Source& source, const Importance* importance, int32_t n_threads,
               const Logger& log);

// Returns the header of a file of the plan. `metadata`: that of the plan, with hashes.
checkpoint::NewHeader header_of(const Plan& plan, const checkpoint::MetaEntries& metadata, int64_t file);

// Returns the hash of a tensor's bytes in a file, which read(offset, out) gives. That of several pieces is the hash of their hashes.
uint64_t hash_of_tensor(const PlannedTensor& tensor,
                        const std::function<void(uint64_t, std::span<std::byte>)>& read);
// Returns the hash of a tensor, given those of its pieces.
uint64_t joined_hash(std::span<const uint64_t> hashes);

// Returns a tensor of the plan as JSON, without the closing brace: a report has more members.
std::string tensor_json(const PlannedTensor& tensor);
// Returns the plan as JSON (minim_convert in minim.h describes it). `tensors`: objects in place of those of tensor_json(), and `more`:
// members behind the sizes, ",\"seconds\":1".
std::string to_json(const Plan& plan, const std::vector<std::string>& tensors = {},
                    std::string_view more = {});

}  // namespace minim::convert
