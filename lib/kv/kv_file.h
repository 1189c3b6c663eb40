// What the files with keys and values have in common: a header that says whose they are and in which layout,
// and pages of which only the slots in use are written. Such files are hostile input: no size of theirs is
// used before it has been checked, no byte before its hash.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "backend/kv_view.h"
#include "base/file.h"

namespace minim::kv {

struct KvFileHeader {
    char magic[8];
    uint32_t version;
    uint32_t page_tokens;
    uint64_t model;  // its fingerprint
    uint32_t n_layer;
    uint32_t n_head_kv;
    uint32_t head_dim;
    uint32_t k_format;  // numbers of GGUF types
    uint32_t v_format;
    uint32_t reserved;
    uint64_t counts[4];  // what they count is the file's own business
    uint64_t file_bytes;
    uint64_t hash;  // of everything above
};

template <typename T>
std::span<const std::byte> bytes_of(const T& value) {
    return std::as_bytes(std::span(&value, 1));
}

// Without counts, file_bytes and hash. `magic`: 8 characters.
KvFileHeader new_header(std::string_view magic, uint64_t model, const backend::KvLayout& layout);

// Fills in the last two fields.
void seal_header(KvFileHeader& header, uint64_t file_bytes);

// Throws format: with reason `format` where the file is none of this kind or version, `truncated`, or `value`
// where the header was altered.
KvFileHeader read_header(const File& file, std::string_view magic);

// Throws format with reason `value`, `type` or `format` for a layout that makes no sense.
backend::KvLayout layout_of(const KvFileHeader& header, const std::string& path);

// Throws format where the file has not the size that its header says and that its counts lead to.
void check_size(const File& file, const KvFileHeader& header, uint64_t expected_bytes);

[[noreturn]] void fail_altered(const std::string& path, std::string_view part);

// Bytes of a page of which the first n_slots slots are in use, run after run.
uint64_t packed_bytes(const backend::KvLayout& layout, int64_t n_slots);
void pack_page(const backend::KvLayout& layout, const std::byte* page, int64_t n_slots, std::byte* out);
void unpack_page(const backend::KvLayout& layout, const std::byte* packed, int64_t n_slots, std::byte* page);

}  // namespace minim::kv
