// SPDX-License-Identifier: Apache-2.0
// Host memory for weights, KV pages and work space: zeroed, page-aligned, prefaulted at allocation, so that running out
// is an error here and not a signal later. Huge pages are requested if the block is large
// enough.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace minim {

// Owns one block of host memory; move-only.
class Buffer {
  public:
    Buffer() = default;
    // Allocates the block. Throws out_of_memory, naming `what`, the bytes needed and the bytes available. Zero bytes give an
    // empty buffer. With `later` no page is prefaulted: the caller does it part by part with prefault(), so that a
    // long wait can be cancelled.
    enum class Presence { now, later };
    Buffer(uint64_t bytes, std::string_view what, Presence presence = Presence::now);
    ~Buffer();
    Buffer(Buffer&& other) noexcept;
    Buffer& operator=(Buffer&& other) noexcept;
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;

    // Prefaults bytes [from, from + count) of the buffer. Throws as the constructor.
    void prefault(uint64_t from, uint64_t count, std::string_view what) const;

    std::byte* data() const noexcept { return data_; }
    uint64_t size() const noexcept { return size_; }

    template <typename T>
    T* as() const noexcept {
        return reinterpret_cast<T*>(data_);
    }

  private:
    void release() noexcept;

    std::byte* data_ = nullptr;
    uint64_t size_ = 0;
};

}  // namespace minim
