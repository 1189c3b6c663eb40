// SPDX-License-Identifier: Apache-2.0
// The common part of files with KV cache pages: a header that names their model and layout, and pages of which only the
// used slots are written. Such files are hostile input: every size is checked before it is used, and every byte against a hash.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/kv_view.h"
#include "base/file.h"

namespace minim::kv {

// Files of models without index keys have version 1: their header lacks index_format and first_index_layer.
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
    uint32_t index_dim;  // 0 in version 1
    uint64_t counts[4];  // their meaning depends on the kind of file
    uint64_t file_bytes;
    uint32_t index_format;  // 0 in version 1, which does not have this field and the next one
    uint32_t first_index_layer;
    uint64_t hash;  // of everything above
};

template <typename T>
std::span<const std::byte> bytes_of(const T& value) {
    return std::as_bytes(std::span(&value, 1));
}

// Returns the bytes of the header in its file, by its version.
uint64_t header_bytes(const KvFileHeader& header) noexcept;
// Returns the bytes of the header of a file with this layout.
uint64_t header_bytes(const backend::KvLayout& layout) noexcept;

// Returns the header as its file has it.
std::vector<std::byte> encoded(const KvFileHeader& header);

// Returns a header without counts, file_bytes and hash. `magic`: 8 characters.
KvFileHeader new_header(std::string_view magic, uint64_t model, const backend::KvLayout& layout);

// Fills in the last two fields, file_bytes and hash.
void seal_header(KvFileHeader& header, uint64_t file_bytes);

// The bytes of a file with KV cache pages: a whole file, a file from a position on, or memory of the caller.
class KvBytes {
  public:
    explicit KvBytes(File file, uint64_t start = 0);
    KvBytes(std::string name, std::span<const std::byte> bytes);  // not copied

    const std::string& name() const noexcept { return name_; }
    uint64_t size() const noexcept { return size_; }
    // Throws as File::read_at.
    void read_at(uint64_t offset, std::span<std::byte> out) const;

  private:
    std::string name_;
    std::optional<File> file_;
    std::span<const std::byte> bytes_;
    uint64_t start_ = 0;
    uint64_t size_ = 0;
};

// Reads and checks the header. Throws format with a reason: `format` (another kind of file, or another version),
// `truncated`, or `value` (the header was altered).
KvFileHeader read_header(const KvBytes& source, std::string_view magic);

// Returns the layout of the header. Throws format with reason `value`, `type` or `format` for an impossible one.
backend::KvLayout layout_of(const KvFileHeader& header, const std::string& path);

enum class Behind : uint8_t {
    nothing,
    anything
};  // the allowed content of the source after the file's bytes

// Throws format if the size of the source differs from the size in its header, or from the size that its counts give.
void check_size(const KvBytes& source, const KvFileHeader& header, uint64_t expected_bytes,
                Behind behind = Behind::nothing);

[[noreturn]] void fail_altered(const std::string& path, std::string_view part);

// Returns the size in bytes of a page packed to its first n_slots slots, run after run.
uint64_t packed_bytes(const backend::KvLayout& layout, int64_t n_slots);
void pack_page(const backend::KvLayout& layout, const std::byte* page, int64_t n_slots, std::byte* out);
void unpack_page(const backend::KvLayout& layout, const std::byte* packed, int64_t n_slots, std::byte* page);

}  // namespace minim::kv
