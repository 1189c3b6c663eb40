// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/byte_source.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/format_text.h"

namespace minim::checkpoint {

static_assert(std::endian::native == std::endian::little, "fields are copied as they stand in the file");

void ByteSource::read_at(uint64_t offset, std::span<std::byte> out) const {
    if (file_ != nullptr) {
        file_->read_at(offset, out);
        return;
    }
    if (offset > memory_.size() || out.size() > memory_.size() - offset) {
        fail_at(name_, Reason::truncated, offset, "{} bytes wanted, the size is {}", out.size(),
                memory_.size());
    }
    if (!out.empty()) std::memcpy(out.data(), memory_.data() + offset, out.size());
}

void throw_bad_file(std::string_view file, Reason reason, uint64_t offset, std::string_view text) {
    ErrorFacts facts;
    facts.offset = static_cast<int64_t>(offset);
    const Status status = reason == Reason::io ? Status::io : Status::format;
    throw Error(status, reason, format_text("{}: {} (byte {})", file, text, offset), facts);
}

HeaderReader::HeaderReader(const ByteSource& source) : source_(source) {
    constexpr uint64_t k_window_bytes = uint64_t{64} << 10;
    window_.resize(std::min(k_window_bytes, source.size()));
}

void HeaderReader::read(std::span<std::byte> out, std::string_view what) {
    if (out.size() > left()) {
        fail_at(file(), Reason::truncated, position_, "the file ends inside {}: {} bytes needed, {} left",
                what, out.size(), left());
    }
    while (!out.empty()) {
        const uint64_t used = position_ - window_start_;
        if (used == window_size_) {
            if (out.size() >= window_.size()) {
                source_.read_at(position_, out);
                position_ += out.size();
                window_start_ = position_;
                window_size_ = 0;
                return;
            }
            window_start_ = position_;
            window_size_ = std::min<uint64_t>(window_.size(), left());
            source_.read_at(window_start_, std::span(window_).first(window_size_));
            continue;
        }
        const size_t count = std::min(out.size(), static_cast<size_t>(window_size_ - used));
        std::memcpy(out.data(), window_.data() + used, count);
        position_ += count;
        out = out.subspan(count);
    }
}

uint64_t HeaderReader::string_length(std::string_view what, uint64_t cap) {
    const uint64_t at = position_;
    const auto length = number<uint64_t>(what);
    if (length > file_size()) {
        fail_at(file(), Reason::limit, at, "{} has a length of {} bytes, more than the whole file", what,
                length);
    }
    if (length > cap) {
        fail_at(file(), Reason::limit, at, "{} has a length of {} bytes, the limit is {}", what, length, cap);
    }
    if (length > left()) {
        fail_at(file(), Reason::truncated, at, "the file ends inside {}: {} bytes needed, {} left", what,
                length, left());
    }
    return length;
}

void HeaderReader::append_string(std::string& out, std::string_view what, uint64_t cap) {
    const uint64_t length = string_length(what, cap);
    const size_t before = out.size();
    out.resize(before + length);
    read(std::as_writable_bytes(std::span(out).subspan(before)), what);
}

}  // namespace minim::checkpoint
