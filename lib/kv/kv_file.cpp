// SPDX-License-Identifier: Apache-2.0
#include "kv/kv_file.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "base/error.h"
#include "base/hash.h"

namespace minim::kv {
namespace {

using backend::k_kv_page_tokens;
using backend::KvLayout;

static_assert(std::endian::native == std::endian::little, "these files are written as they lie in memory");
static_assert(sizeof(KvFileHeader) == 104 && std::has_unique_object_representations_v<KvFileHeader>);

constexpr uint32_t k_version = 2;
constexpr uint32_t k_version_without_index = 1;

// Returns the bytes of the header before its hash. In the file the hash follows them.
size_t hashed_bytes(uint32_t version) {
    return version == k_version_without_index ? offsetof(KvFileHeader, index_format)
                                              : offsetof(KvFileHeader, hash);
}

uint32_t version_of(const KvLayout& layout) {
    return layout.index_dim == 0 ? k_version_without_index : k_version;
}

uint64_t hash_of(const KvFileHeader& header) {
    return hash_bytes(bytes_of(header).first(hashed_bytes(header.version)));
}

Format kv_format(const KvFileHeader& header, uint32_t type, const std::string& path) {
    const std::optional<Format> format = format_from_gguf_type(type);
    const bool fits = format && backend::is_kv_format(*format) &&
                      header.head_dim % static_cast<uint32_t>(traits(*format).block_elems) == 0;
    if (!fits) fail_file(Reason::type, "{}: keys or values of type {}", path, type);
    return *format;
}

// Calls visit(offset in the page, offset in the packed page, bytes) for each run of slots that are in use.
template <typename Visit>
void for_each_run(const KvLayout& layout, int64_t n_slots, const Visit& visit) {
    const int64_t k_bytes = n_slots * layout.k_token_bytes();
    const int64_t v_bytes = n_slots * layout.v_token_bytes();
    const int64_t index_bytes = n_slots * layout.index_token_bytes();
    size_t packed = 0;
    for (int64_t layer = 0; layer < layout.n_layer; ++layer) {
        for (int64_t head = 0; head < layout.n_head_kv; ++head, packed += k_bytes)
            visit(layout.k_offset(layer, head), packed, k_bytes);
        for (int64_t head = 0; head < layout.n_head_kv; ++head, packed += v_bytes)
            visit(layout.v_offset(layer, head), packed, v_bytes);
        if (!layout.has_index(layer)) continue;
        visit(layout.index_offset(layer), packed, index_bytes);
        packed += index_bytes;
    }
}

}  // namespace

uint64_t header_bytes(const KvFileHeader& header) noexcept {
    return hashed_bytes(header.version) + sizeof(header.hash);
}

uint64_t header_bytes(const KvLayout& layout) noexcept {
    return hashed_bytes(version_of(layout)) + sizeof(KvFileHeader::hash);
}

std::vector<std::byte> encoded(const KvFileHeader& header) {
    std::vector<std::byte> bytes(header_bytes(header));
    const size_t hash_at = hashed_bytes(header.version);
    std::memcpy(bytes.data(), &header, hash_at);
    std::memcpy(bytes.data() + hash_at, &header.hash, sizeof(header.hash));
    return bytes;
}

KvFileHeader new_header(std::string_view magic, uint64_t model, const KvLayout& layout) {
    KvFileHeader header = {};
    std::memcpy(header.magic, magic.data(), sizeof(header.magic));
    header.version = version_of(layout);
    header.page_tokens = static_cast<uint32_t>(k_kv_page_tokens);
    header.model = model;
    header.n_layer = static_cast<uint32_t>(layout.n_layer);
    header.n_head_kv = static_cast<uint32_t>(layout.n_head_kv);
    header.head_dim = static_cast<uint32_t>(layout.head_dim);
    header.k_format = traits(layout.k_format).gguf_type;
    header.v_format = traits(layout.v_format).gguf_type;
    if (layout.index_dim == 0) return header;
    header.index_dim = static_cast<uint32_t>(layout.index_dim);
    header.index_format = traits(layout.index_format).gguf_type;
    header.first_index_layer = static_cast<uint32_t>(layout.first_index_layer);
    return header;
}

void seal_header(KvFileHeader& header, uint64_t file_bytes) {
    header.file_bytes = file_bytes;
    header.hash = hash_of(header);
}

KvBytes::KvBytes(File file, uint64_t start) : name_(file.path()), file_(std::move(file)), start_(start) {
    size_ = file_->size() - std::min(start, file_->size());
}

KvBytes::KvBytes(std::string name, std::span<const std::byte> bytes)
    : name_(std::move(name)), bytes_(bytes), size_(bytes.size()) {}

void KvBytes::read_at(uint64_t offset, std::span<std::byte> out) const {
    if (file_) {
        file_->read_at(start_ + offset, out);
        return;
    }
    if (offset > size_ || out.size() > size_ - offset) {
        fail_file(Reason::truncated, "{}: ends at byte {}, {} bytes wanted from {}", name_, size_, out.size(),
                  offset);
    }
    if (!out.empty()) std::memcpy(out.data(), bytes_.data() + offset, out.size());
}

KvFileHeader read_header(const KvBytes& source, std::string_view magic) {
    KvFileHeader header = {};
    if (source.size() >= sizeof(header.magic))
        source.read_at(0, std::as_writable_bytes(std::span(header.magic)));
    if (std::memcmp(header.magic, magic.data(), sizeof(header.magic)) != 0)
        fail_file(Reason::format, "{}: not a {} file", source.name(), magic);
    const auto all = std::as_writable_bytes(std::span(&header, 1));
    source.read_at(0, all.first(offsetof(KvFileHeader, page_tokens)));
    if (header.version != k_version && header.version != k_version_without_index) {
        fail_file(Reason::format, "{}: a {} file of version {}; versions {} and {} are read", source.name(),
                  magic, header.version, k_version_without_index, k_version);
    }
    const size_t hash_at = hashed_bytes(header.version);
    source.read_at(0, all.first(hash_at));
    source.read_at(hash_at, all.last(sizeof(header.hash)));
    if (header.hash != hash_of(header)) fail_altered(source.name(), "sizes");
    return header;
}

KvLayout layout_of(const KvFileHeader& header, const std::string& path) {
    constexpr uint32_t k_max = 1U << 16;
    if (header.page_tokens != k_kv_page_tokens) {
        fail_file(Reason::format, "{}: pages of {} tokens; pages of {} are read", path, header.page_tokens,
                  k_kv_page_tokens);
    }
    for (const uint32_t size : {header.n_layer, header.n_head_kv, header.head_dim})
        if (size == 0 || size > k_max)
            fail_file(Reason::value, "{}: {} layers, heads or columns", path, size);
    KvLayout layout = {header.n_layer, header.n_head_kv, header.head_dim,
                       kv_format(header, header.k_format, path), kv_format(header, header.v_format, path)};
    if (layout.rotates_keys() && !std::has_single_bit(header.head_dim)) {
        fail_file(Reason::value, "{}: keys in {} with {} columns, which is no power of two", path,
                  traits(layout.k_format).name, header.head_dim);
    }
    const bool has_index = header.version != k_version_without_index;
    if (has_index != (header.index_dim > 0) || header.index_dim > k_max ||
        header.first_index_layer >= header.n_layer) {
        fail_file(Reason::value, "{}: index keys of {} columns from layer {} on, in version {}", path,
                  header.index_dim, header.first_index_layer, header.version);
    }
    if (!has_index) return layout;
    layout.index_dim = header.index_dim;
    layout.index_format = backend::index_format_of(layout.k_format);
    layout.first_index_layer = header.first_index_layer;
    if (header.index_format != traits(layout.index_format).gguf_type)
        fail_file(Reason::type, "{}: index keys of type {} beside keys in {}", path, header.index_format,
                  traits(layout.k_format).name);
    return layout;
}

void check_size(const KvBytes& source, const KvFileHeader& header, uint64_t expected_bytes, Behind behind) {
    if (header.file_bytes != expected_bytes) {
        fail_file(Reason::value, "{}: the header says {} bytes, but the content takes {}", source.name(),
                  header.file_bytes, expected_bytes);
    }
    if (source.size() < expected_bytes) {
        fail_file(Reason::truncated, "{}: the file should have {} bytes, and has {}", source.name(),
                  expected_bytes, source.size());
    }
    if (behind == Behind::nothing && source.size() > expected_bytes)
        fail_file(Reason::value, "{}: a file of {} bytes has {}", source.name(), expected_bytes,
                  source.size());
}

void fail_altered(const std::string& path, std::string_view part) {
    fail_file(Reason::value, "{}: the {} of this file differ from what was written (its hash does not match)",
              path, part);
}

uint64_t packed_bytes(const KvLayout& layout, int64_t n_slots) {
    return static_cast<uint64_t>(layout.page_bytes() / k_kv_page_tokens * n_slots);
}

void pack_page(const KvLayout& layout, const std::byte* page, int64_t n_slots, std::byte* out) {
    for_each_run(layout, n_slots, [&](int64_t place, size_t packed, size_t bytes) {
        std::memcpy(out + packed, page + place, bytes);
    });
}

void unpack_page(const KvLayout& layout, const std::byte* packed, int64_t n_slots, std::byte* page) {
    for_each_run(layout, n_slots, [&](int64_t place, size_t at, size_t bytes) {
        std::memcpy(page + place, packed + at, bytes);
    });
}

}  // namespace minim::kv
