// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/gguf_writer.h"

#include <algorithm>
#include <utility>

#include "base/checked.h"
#include "base/error.h"

namespace minim::checkpoint {
namespace {

constexpr uint32_t k_written_version = 3;
constexpr size_t k_max_written_parts = UINT16_MAX;  // split.count is u16 in the files of llama-gguf-split

uint64_t padded(uint64_t bytes) {
    return align_up(bytes, k_gguf_alignment);
}

uint64_t alignment_of(const MetaEntries& metadata) {
    for (const auto& [key, value] : metadata)
        if (key == "general.alignment") return value.unsigned_at(0);
    return k_gguf_alignment;
}

}  // namespace

MetaValue meta_text(std::string_view text) {
    return {MetaType::string, MetaType::string, 1, std::string(text), {}};
}

MetaValue meta_texts(std::span<const std::string> texts) {
    MetaValue value = {MetaType::array, MetaType::string, texts.size(), {}, {}};
    value.ends.reserve(texts.size());
    for (const std::string& text : texts) {
        value.bytes += text;
        value.ends.push_back(value.bytes.size());
    }
    return value;
}

void append_entry(ByteWriter& out, std::string_view key, const MetaValue& value) {
    out.string(key);
    out.number(static_cast<uint32_t>(value.type));
    if (value.is_array()) {
        out.number(static_cast<uint32_t>(value.element_type));
        out.number(value.count);
    }
    if (value.element_type == MetaType::string) {
        for (uint64_t i = 0; i < value.count; ++i) out.string(value.string_at(i));
    } else {
        out.raw(std::as_bytes(std::span(value.bytes)));
    }
}

void append_record(ByteWriter& out, std::string_view name, std::span<const uint64_t> dims, uint32_t type,
                   uint64_t offset) {
    out.string(name);
    out.number(static_cast<uint32_t>(dims.size()));
    for (const uint64_t dim : dims) out.number(dim);
    out.number(type);
    out.number(offset);
}

NewHeader make_gguf_header(const MetaEntries& metadata, std::span<const NewTensor> tensors) {
    const uint64_t alignment = alignment_of(metadata);
    ByteWriter out;
    out.raw(std::as_bytes(std::span("GGUF", 4)));
    out.number(k_written_version);
    out.number<uint64_t>(tensors.size());
    out.number<uint64_t>(metadata.size());
    for (const auto& [key, value] : metadata) append_entry(out, key, value);
    NewHeader header;
    uint64_t at = 0;
    for (const NewTensor& tensor : tensors) {
        std::vector<uint64_t> dims(tensor.shape.rbegin(), tensor.shape.rend());
        append_record(out, tensor.name, dims, tensor.type, at);
        header.offsets.push_back(at);
        at = align_up(at + tensor.bytes, alignment);
    }
    out.pad_to(alignment);
    for (uint64_t& offset : header.offsets) offset += out.bytes.size();
    header.file_bytes = out.bytes.size() + at;
    header.bytes = std::move(out.bytes);
    return header;
}

std::vector<int64_t> cut_into_parts(std::span<const NewTensor> tensors, const PartLimits& limits) {
    std::vector<int64_t> counts = limits.counts;
    if (counts.empty()) {
        counts.push_back(0);
        if (limits.first_without_tensors && !tensors.empty()) counts.push_back(0);
        uint64_t bytes = 0;
        for (const NewTensor& tensor : tensors) {
            const bool is_full = (limits.bytes != 0 && bytes + padded(tensor.bytes) > limits.bytes) ||
                                 (limits.tensors != 0 && counts.back() == limits.tensors);
            if (is_full && counts.back() != 0) {
                counts.push_back(0);
                bytes = 0;
            }
            ++counts.back();
            bytes += padded(tensor.bytes);
        }
    }
    if (counts.size() > k_max_written_parts)
        fail(Status::invalid, "the limits of a part make {} parts; at most {} are possible", counts.size(),
             k_max_written_parts);
    return counts;
}

MetaEntries part_metadata(const MetaEntries& metadata, int64_t number, int64_t n_parts, int64_t n_tensors) {
    MetaEntries entries;
    if (number == 0) entries = metadata;
    if (n_parts == 1) return entries;
    entries.emplace_back("split.no", meta_value(static_cast<uint16_t>(number)));
    entries.emplace_back("split.tensors.count", meta_value(static_cast<int32_t>(n_tensors)));
    entries.emplace_back("split.count", meta_value(static_cast<uint16_t>(n_parts)));
    return entries;
}

}  // namespace minim::checkpoint
